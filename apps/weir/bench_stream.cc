// SPDX-License-Identifier: Apache-2.0
#include "bench_stream.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "io/json.h"
#include "print.h"

namespace weir::app {
namespace {

// Times of equal pieces of work. Storage is allocated once: a benchmark of constant memory must not grow itself.
class Times {
 public:
  explicit Times(int64_t most) { ms_.reserve(static_cast<size_t>(most)); }
  void Clear() { ms_.clear(), total_ = 0; }
  void Add(double ms) { ms_.push_back(ms), total_ += ms; }
  void Sort() { std::sort(ms_.begin(), ms_.end()); }
  // REQUIRES: sorted. The smallest time that at least this share of the pieces did not exceed; 0 without any.
  double Percentile(double share) const {
    if (ms_.empty()) return 0;
    const auto n = static_cast<double>(ms_.size());
    const auto rank = static_cast<size_t>(std::max(0.0, std::ceil(share * n) - 1));
    return ms_[std::min(rank, ms_.size() - 1)];
  }
  double total_ms() const { return total_; }

 private:
  std::vector<double> ms_;
  double total_ = 0;
};

class StreamBench {
 public:
  // `recall` may be nullptr.
  StreamBench(LoadedModel& model, Session& session, StreamRecall* recall, const StreamBenchFlags& flags)
      : model_(model),
        session_(session),
        recall_(recall),
        flags_(flags),
        chunks_(flags.every / session.plan().chunk_rows + 2),
        steps_(flags.n_gen),
        ids_(static_cast<size_t>(session.plan().chunk_rows)) {}

  Status Run() {
    PrintHead();
    int64_t n_read = 0;
    while (n_read < flags_.n_tokens) {
      const int64_t n = std::min(flags_.every, flags_.n_tokens - n_read);
      WEIR_RETURN_IF_ERROR(Read(n));
      WEIR_RETURN_IF_ERROR(Write());
      n_read += n;
      PrintRow(n);
      WEIR_RETURN_IF_ERROR(FlushOutput());
    }
    return Status();
  }

 private:
  std::span<const int32_t> RandomIds(int64_t n) {
    const auto n_vocab = static_cast<uint64_t>(model_.model().config().n_vocab);
    for (int64_t i = 0; i < n; ++i) ids_[static_cast<size_t>(i)] = static_cast<int32_t>(rng_.Below(n_vocab));
    return {ids_.data(), static_cast<size_t>(n)};
  }

  Status Read(int64_t n) {
    chunks_.Clear();
    Session::AppendOptions append;
    append.stop = &StopFlag();
    const int64_t chunk = session_.plan().chunk_rows;
    for (int64_t at = 0; at < n; at += chunk) {
      const std::span<const int32_t> ids = RandomIds(std::min(chunk, n - at));
      append.end_of_prompt = at + chunk >= n;
      const Clock::time_point start = Clock::now();
      WEIR_RETURN_IF_ERROR(session_.Append(ids, append));
      // As every program that reads does: what the call read is with the operating system.
      if (recall_ != nullptr) recall_->Flush();
      chunks_.Add(MillisecondsSince(start));
    }
    return Status();
  }

  Status Write() {
    steps_.Clear();
    Session::AppendOptions append;
    append.stop = &StopFlag();
    append.generated = true;
    for (int i = 0; i < flags_.n_gen; ++i) {
      const std::span<const int32_t> id = RandomIds(1);
      const Clock::time_point start = Clock::now();
      WEIR_RETURN_IF_ERROR(session_.Append(id, append));
      WEIR_RETURN_IF_ERROR(session_.Logits().status());
      steps_.Add(MillisecondsSince(start));
    }
    return Status();
  }

  void PrintHead() const {
    if (flags_.format == "md") {
      Print(stdout,
            "| tokens seen | reading t/s | chunk ms: median, 95 %, 99 %, most | writing t/s | token ms: median, 95 %, "
            "99 %, "
            "most | session | process |{}\n|--:|--:|---|--:|---|--:|--:|{}\n",
            recall_ != nullptr ? " archive |" : "", recall_ != nullptr ? "--:|" : "");
    } else if (flags_.format == "csv") {
      Print(
          stdout,
          "tokens_seen,read_tokens_per_s,chunk_p50_ms,chunk_p95_ms,chunk_p99_ms,chunk_max_ms,write_tokens_per_s,token_"
          "p50_ms,"
          "token_p95_ms,token_p99_ms,token_max_ms,ledger_bytes,resident_bytes{}\n",
          recall_ != nullptr ? ",archive_bytes" : "");
    }
  }

  void PrintRow(int64_t n_read) {
    chunks_.Sort();
    steps_.Sort();
    const double reading = static_cast<double>(n_read) / chunks_.total_ms() * 1e3;
    const double writing = flags_.n_gen == 0 ? 0 : flags_.n_gen / steps_.total_ms() * 1e3;
    const int64_t ledger = session_.ledger().peak_bytes(), resident = ResidentBytes();
    const int64_t seen = session_.counters().seen, archive = recall_ != nullptr ? recall_->archive().disk_bytes() : 0;
    if (flags_.format == "jsonl") {
      nlohmann::ordered_json row;
      row["tokens_seen"] = seen;
      row["read_tokens_per_s"] = reading;
      row["chunk_ms"] = Percentiles(chunks_);
      row["write_tokens_per_s"] = writing;
      row["token_ms"] = Percentiles(steps_);
      row["ledger_bytes"] = ledger;
      row["resident_bytes"] = resident;
      if (recall_ != nullptr) row["archive_bytes"] = archive;
      Print(stdout, "{}\n", JsonText(row));
    } else if (flags_.format == "csv") {
      Print(stdout, "{},{:.3f},{},{:.3f},{},{},{}{}\n", seen, reading, Joined(chunks_, 3, ","), writing,
            Joined(steps_, 3, ","), ledger, resident, recall_ != nullptr ? fmt::format(",{}", archive) : "");
    } else {
      Print(stdout, "| {} | {:.1f} | {} | {:.1f} | {} | {} | {} |{}\n", CountText(seen), reading,
            Joined(chunks_, 2, ", "), writing, Joined(steps_, 2, ", "), BytesText(ledger), BytesText(resident),
            recall_ != nullptr ? fmt::format(" {} |", BytesText(archive)) : "");
    }
  }

  static nlohmann::ordered_json Percentiles(const Times& times) {
    return {{"p50", times.Percentile(0.5)},
            {"p95", times.Percentile(0.95)},
            {"p99", times.Percentile(0.99)},
            {"max", times.Percentile(1)}};
  }
  static std::string Joined(const Times& times, int decimals, const char* between) {
    std::string text;
    for (const double share : {0.5, 0.95, 0.99, 1.0}) {
      text += fmt::format("{}{:.{}f}", text.empty() ? "" : between, times.Percentile(share), decimals);
    }
    return text;
  }

  LoadedModel& model_;
  Session& session_;
  StreamRecall* const recall_;
  const StreamBenchFlags& flags_;
  Times chunks_, steps_;
  std::vector<int32_t> ids_;
  Rng rng_{1};
};

}  // namespace

Status RunStreamBench(LoadedModel& model, SessionOptions options, const RecallOptions& recall,
                      const StreamBenchFlags& flags) {
  WEIR_RETURN_IF_ERROR(AddRecall(recall, model, &options));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Make(model.model(), model.backend(), options));
  std::unique_ptr<StreamRecall> recalled;
  if (recall.on()) {
    WEIR_ASSIGN_OR_RETURN(recalled, StreamRecall::Make(recall, model, *session));
    WEIR_RETURN_IF_ERROR(recalled->CutTo({}));
  }
  return StreamBench(model, *session, recalled.get(), flags).Run();
}

}  // namespace weir::app
