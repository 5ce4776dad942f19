// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir bench: tokens per second, and the memory traffic they need.
//
// Columns follow llama-bench (pp = prefill of n_prompt tokens, tg = n_gen tokens one by one, @ d = after depth tokens).
// bytes_per_token is what one token must read at least: the weights (once per chunk in prefill), the keys and values
// of the slots it attends to. GB/s is that over the time taken: compare it with the machine's read bandwidth.
//
// With --against every repetition is measured twice, once per policy, alternating; the ratio is that of the medians.
// Other load on the machine then affects both alike.
#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/rng.h"
#include "bench_stream.h"
#include "chat/probe.h"
#include "commands/command.h"
#include "common.h"
#include "io/json.h"
#include "print.h"
#include "recall_flags.h"

namespace weir::app {
namespace {

struct BenchFlags {
  std::vector<int> n_prompt{512}, n_gen{128}, depth{0};
  int repetitions = 5;
  std::string format = "md", against;
};

struct Figure {
  double mean = 0, stddev = 0, median = 0;
};

Figure Summarise(std::vector<double> samples) {
  Figure out;
  for (double s : samples) out.mean += s / static_cast<double>(samples.size());
  for (double s : samples) out.stddev += (s - out.mean) * (s - out.mean);
  out.stddev = samples.size() > 1 ? std::sqrt(out.stddev / static_cast<double>(samples.size() - 1)) : 0;
  std::sort(samples.begin(), samples.end());
  const size_t middle = samples.size() / 2;
  out.median = samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  return out;
}

class Bench {
 public:
  // One or two configurations; the second one is what the first is compared with.
  Bench(LoadedModel& model, const ModelFlags& model_flags, std::vector<SessionOptions> options, const BenchFlags& flags)
      : model_(model), model_flags_(model_flags), options_(std::move(options)), flags_(flags) {}

  Status Run() {
    if (flags_.format == "md") {
      app::Print(stdout, "| model | test | policy | pot | threads | t/s | bytes/token | GB/s | peak |{}\n",
                 options_.size() > 1 ? " median against the other |" : "");
      app::Print(stdout, "|---|---|---|--:|--:|--:|--:|--:|--:|{}\n", options_.size() > 1 ? "--:|" : "");
    } else if (flags_.format == "csv") {
      app::Print(
          stdout,
          "model,test,n_prompt,n_gen,depth,policy,pot,threads,tokens_per_s,stddev,median,bytes_per_token,gb_per_s,"
          "peak_bytes,ratio\n");
    }
    for (int depth : flags_.depth) {
      for (int n : flags_.n_prompt) {
        if (n > 0) WEIR_RETURN_IF_ERROR(One(n, 0, depth));
      }
      for (int n : flags_.n_gen) {
        if (n > 0) WEIR_RETURN_IF_ERROR(One(0, n, depth));
      }
    }
    return Status();
  }

 private:
  Status One(int n_prompt, int n_gen, int depth) {
    const int32_t n_vocab = model_.model().config().n_vocab;
    Rng rng(1);
    std::vector<int32_t> ids(static_cast<size_t>(depth + std::max(n_prompt, n_gen)));
    for (int32_t& id : ids) id = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(n_vocab)));
    std::vector<std::unique_ptr<Session>> sessions;
    for (SessionOptions options : options_) {
      // Without a pot size a test gets exactly the room it needs, as in llama-bench.
      if (options.pot_slots == 0 && options.budget_bytes == 0) options.pot_slots = depth + n_prompt + n_gen;
      WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Make(model_.model(), model_.backend(), options));
      sessions.push_back(std::move(session));
    }
    std::vector<std::vector<double>> rates(sessions.size());
    for (int repetition = 0; repetition <= flags_.repetitions; ++repetition) {  // the first one warms up
      for (size_t i = 0; i < sessions.size(); ++i) {
        WEIR_ASSIGN_OR_RETURN(const double rate, Rate(*sessions[i], ids, depth, n_prompt, n_gen));
        if (repetition > 0) rates[i].push_back(rate);
      }
    }
    std::vector<Figure> figures;
    for (const std::vector<double>& samples : rates) figures.push_back(Summarise(samples));
    for (size_t i = 0; i < sessions.size(); ++i) {
      const double ratio = sessions.size() > 1 ? figures[i].median / figures[1 - i].median : 0;
      Print(*sessions[i], options_[i].policy.text, n_prompt, n_gen, depth, figures[i], ratio);
    }
    return FlushOutput();  // print each row as soon as it is known
  }

  // Tokens per second of one test, from an empty session.
  Result<double> Rate(Session& session, std::span<const int32_t> ids, int depth, int n_prompt, int n_gen) {
    session.Reset();
    Session::AppendOptions append;
    append.stop = &StopFlag();
    append.end_of_prompt = true;
    if (depth > 0) WEIR_RETURN_IF_ERROR(session.Append(ids.first(static_cast<size_t>(depth)), append));
    const std::span<const int32_t> rest = ids.subspan(static_cast<size_t>(depth));
    const auto start = Clock::now();
    if (n_prompt > 0) {
      WEIR_RETURN_IF_ERROR(session.Append(rest.first(static_cast<size_t>(n_prompt)), append));
      WEIR_RETURN_IF_ERROR(session.Logits().status());
    }
    append.end_of_prompt = false;
    append.generated = true;
    for (int i = 0; i < n_gen; ++i) {
      WEIR_RETURN_IF_ERROR(session.Append(rest.subspan(static_cast<size_t>(i), 1), append));
      WEIR_RETURN_IF_ERROR(session.Logits().status());
    }
    return (n_prompt + n_gen) / SecondsSince(start);
  }

  // The least that must be read per token: weights once per chunk, and the visible slots of every chunk once.
  double BytesPerToken(const Session& session, int n_prompt, int n_gen, int depth) const {
    const SessionPlan& plan = session.plan();
    const int64_t window_bytes = Pot::WindowBytes(plan.pot), state_bytes = Pot::StateBytes(plan.pot);
    const double slot_bytes =
        static_cast<double>(Pot::KvBytes(plan.pot) - state_bytes - window_bytes) / plan.pot.n_slots;
    const WindowLayers& windows = plan.pot.windows;
    const double window_slot_bytes =
        windows.n_slots == 0 ? 0 : static_cast<double>(window_bytes) / (1 + windows.n_marks) / windows.n_slots;
    const int n = n_prompt + n_gen, step = n_prompt > 0 ? plan.chunk_rows : 1;
    double bytes = 0;
    for (int at = 0; at < n; at += step) {
      const int end = std::min(n, at + step);
      bytes += static_cast<double>(model_.model().WeightBytesPerToken());
      bytes += slot_bytes * std::min(depth + end, plan.pot.n_slots);
      bytes += window_slot_bytes * std::min(depth + end, windows.window - 1 + end - at);
    }
    return bytes / n;
  }

  void Print(const Session& session, const std::string& policy, int n_prompt, int n_gen, int depth, const Figure& rate,
             double ratio) const {
    const std::string file = model_flags_.FileName();
    std::string test = n_prompt > 0 ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}", n_gen);
    if (depth > 0) test += fmt::format(" @ d{}", depth);
    const double bytes = BytesPerToken(session, n_prompt, n_gen, depth), gb_per_s = bytes * rate.mean / 1e9;
    const int64_t peak = session.ledger().peak_bytes() + model_.ledger().used_bytes();
    const int pot = session.plan().pot.n_slots, threads = model_.backend().n_threads();
    if (flags_.format == "jsonl") {
      nlohmann::ordered_json row;
      row["model"] = file;
      row["test"] = test;
      row["n_prompt"] = n_prompt;
      row["n_gen"] = n_gen;
      row["depth"] = depth;
      row["policy"] = policy;
      row["pot"] = pot;
      row["threads"] = threads;
      row["tokens_per_s"] = rate.mean;
      row["stddev"] = rate.stddev;
      row["median"] = rate.median;
      row["bytes_per_token"] = bytes;
      row["gb_per_s"] = gb_per_s;
      row["peak_bytes"] = peak;
      if (ratio > 0) row["ratio"] = ratio;
      app::Print(stdout, "{}\n", JsonText(row));
    } else if (flags_.format == "csv") {
      app::Print(stdout, "{},{},{},{},{},\"{}\",{},{},{:.3f},{:.3f},{:.3f},{:.0f},{:.3f},{},{:.4f}\n", file, test,
                 n_prompt, n_gen, depth, policy, pot, threads, rate.mean, rate.stddev, rate.median, bytes, gb_per_s,
                 peak, ratio);
    } else {
      app::Print(stdout, "| {} | {} | {} | {} | {} | {:.2f} ± {:.2f} | {} | {:.2f} | {} |{}\n", file, test, policy, pot,
                 threads, rate.mean, rate.stddev, BytesText(static_cast<int64_t>(bytes)), gb_per_s, BytesText(peak),
                 ratio > 0 ? fmt::format(" {:.3f} |", ratio).c_str() : "");
    }
  }

  LoadedModel& model_;
  const ModelFlags& model_flags_;
  const std::vector<SessionOptions> options_;
  const BenchFlags& flags_;
};

Status RunBench(const ModelFlags& model_flags, const PotFlags& pot_flags, const BenchFlags& flags,
                StreamBenchFlags stream) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(model_flags));
  model->Settle();
  std::vector<SessionOptions> options;
  for (const std::string& policy : {pot_flags.policy, flags.against}) {
    if (policy.empty()) continue;
    PotFlags one = pot_flags;
    one.policy = policy;
    WEIR_ASSIGN_OR_RETURN(SessionOptions session, ToSessionOptions(one));
    WEIR_RETURN_IF_ERROR(PrepareProbe(model->tokenizer(), nullptr, std::nullopt, &session));
    options.push_back(std::move(session));
  }
  WEIR_ASSIGN_OR_RETURN(const RecallOptions recall, ToNewRecallOptions(pot_flags.recall));
  if (recall.on() && stream.n_tokens == 0) return InvalidArgument("--recall needs --stream: nothing is asked here");
  if (stream.n_tokens > 0) {
    stream.format = flags.format;
    return RunStreamBench(*model, options[0], recall, stream);
  }
  return Bench(*model, model_flags, std::move(options), flags).Run();
}

Action AddBench(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto flags = std::make_shared<BenchFlags>();
  auto stream = std::make_shared<StreamBenchFlags>();
  pot->policy = "full";
  AddModelFlags(sub, model.get());
  AddPotFlags(sub, pot.get());
  AddRecallFlags(sub, &pot->recall);
  sub.add_option("-p,--n-prompt", flags->n_prompt, "prefill lengths: 512 or 128,512; 0 = none")
      ->delimiter(',')
      ->check(Between(0, 1 << 24))
      ->capture_default_str();
  sub.add_option("-n,--n-gen", flags->n_gen, "tokens to decode; 0 = none")
      ->delimiter(',')
      ->check(Between(0, 1 << 24))
      ->capture_default_str();
  sub.add_option("-d,--n-depth", flags->depth, "tokens read before the measurement")
      ->delimiter(',')
      ->check(Between(0, 1 << 24))
      ->capture_default_str();
  sub.add_option("-r,--repetitions", flags->repetitions, "measured repetitions, after one warm-up")
      ->check(Between(1, 1000))
      ->capture_default_str();
  CLI::Option* against = sub.add_option("--against", flags->against,
                                        "also measure this policy, alternating with --policy, and print the ratio")
                             ->type_name("NAME");
  CLI::Option* tokens = sub.add_option("--stream", stream->n_tokens,
                                       "instead, read this many tokens through the pot and print rates, latency "
                                       "percentiles and bytes along the way")
                            ->type_name("TOKENS")
                            ->excludes(against)
                            ->check(Between<int64_t>(1, int64_t{1} << 40));
  sub.add_option("--every", stream->every, "with --stream: tokens read between rows")
      ->type_name("TOKENS")
      ->needs(tokens)
      ->check(Between(1, 1 << 24))
      ->capture_default_str();
  sub.add_option("--stream-gen", stream->n_gen, "with --stream: tokens decoded per row")
      ->type_name("TOKENS")
      ->needs(tokens)
      ->check(Between(0, 1 << 20))
      ->capture_default_str();
  sub.add_option("-o,--output", flags->format, "md, csv or jsonl")
      ->check(CLI::IsMember({"md", "csv", "jsonl"}))
      ->capture_default_str();
  return [=] {
    InstallStopHandler();
    return RunBench(*model, *pot, *flags, *stream);
  };
}

}  // namespace

extern const CommandInfo kBench;
const CommandInfo kBench = {.name = "bench",
                            .summary = "measure tokens/s and bytes moved, in the columns of llama-bench",
                            .group = CommandGroup::kMeasure,
                            .add = AddBench};

}  // namespace weir::app
