// SPDX-License-Identifier: Apache-2.0
// From a question to the first token of its answer, over a long archive:
//
//     recall_first_token_bench MODEL.gguf TEXT QUESTIONS FOLDER [TOKENS=1000000] [POT=1024]
//
// The archive is made in FOLDER from the first TOKENS tokens of TEXT (repeated if it ends before) without the model,
// since what a question costs does not depend on who filled it; the model reads the last two pots of them. QUESTIONS
// has one question a line. Each is asked twice, in turns: `warm` with the archive in the page cache, `dropped` with its
// pages dropped before. The folder is deleted at the end. One JSON line for each.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "recall/recaller.h"
#include "recall/stream_recall.h"

namespace {

using namespace weir;

int Die(const Status& status) {
  std::fprintf(stderr, "recall_first_token_bench: %s\n", status.message().c_str());
  return 2;
}

// The archive as the past of a session that has read only its end: everything lies before the session's first token.
class Past final : public BlockSource {
 public:
  Past(Archive& archive, int64_t n_tokens) : archive_(archive), n_tokens_(n_tokens) {}
  BlockPlace begin() const override { return archive_.begin(); }
  Status Scan(BlockPlace from, const Visit& visit) override { return archive_.Scan(from, Shifted(visit)); }
  Status ScanText(BlockPlace from, const Visit& visit) override { return archive_.ScanText(from, Shifted(visit)); }

 private:
  Visit Shifted(const Visit& visit) const {
    return [&visit, n = n_tokens_](BlockPlace place, const Block& block) {
      Block past = block;
      past.seq -= n;
      return visit(place, past);
    };
  }
  Archive& archive_;
  const int64_t n_tokens_;
};

// The share `share` of sorted times did not take longer.
double Percentile(std::vector<double> ms, double share) {
  std::sort(ms.begin(), ms.end());
  const auto rank = static_cast<size_t>(std::max(0.0, std::ceil(share * static_cast<double>(ms.size())) - 1));
  return ms[std::min(rank, ms.size() - 1)];
}

void DropPages(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    (void)fdatasync(fd);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

struct Times {
  std::vector<double> search_ms, first_token_ms;
  int64_t n_recalled = 0;
};

// Fills the archive; the last tokens go to `end`, too.
Status Fill(const LoadedModel& model, const std::string& text, int64_t n_tokens, int64_t n_end, Archive* archive,
            std::vector<int32_t>* end) {
  EncodeOptions encode;
  encode.add_special = false;
  const std::vector<int32_t> ids = model.tokenizer().Encode(text, encode);
  if (ids.empty()) return InvalidArgument("the text is empty");
  Status failed;
  Recorder recorder(model.tokenizer(),
                    [&](const Block& block) {
                      if (failed.ok()) failed = archive->Append(block);
                    },
                    {});
  constexpr int64_t kPiece = 256;
  std::vector<int32_t> piece(kPiece);
  for (int64_t at = 0; at < n_tokens; at += kPiece) {
    for (int64_t i = 0; i < kPiece; ++i) piece[i] = ids[static_cast<size_t>((at + i) % std::ssize(ids))];
    Arrival arrival;
    arrival.seq = at;
    arrival.tokens = piece;
    arrival.n = kPiece;
    recorder.Arrived(arrival);
    if (at + n_end >= n_tokens) end->insert(end->end(), piece.begin(), piece.end());
  }
  recorder.Flush();
  archive->Flush();
  return failed.ok() ? archive->state() : failed;
}

Status Ask(const LoadedModel& model, Session& session, Recaller& recaller, const std::string& question,
           std::span<const uint8_t> state, Times* times) {
  EncodeOptions encode;
  encode.add_special = false;
  const std::vector<int32_t> ids = model.tokenizer().Encode("\n\n" + question, encode);
  const Clock::time_point start = Clock::now();
  const Result<Recalled> recalled = recaller.Bring(session, question, 0);
  if (!recalled.ok()) return recalled.status();
  // The search and reading what it found.
  times->search_ms.push_back(MillisecondsSince(start));
  Session::AppendOptions append;
  append.end_of_prompt = true;
  if (Status status = session.Append(ids, append); !status.ok()) return status;
  if (const auto logits = session.Logits(); !logits.ok()) return logits.status();
  times->first_token_ms.push_back(MillisecondsSince(start));
  times->n_recalled += recalled->passages.empty() ? 0 : 1;
  return session.Restore(state);
}

Status Run(const char* model_path, const char* text_path, const char* questions_path, const std::string& folder,
           int64_t n_tokens, int32_t pot) {
  LoadModelOptions load;
  load.path = model_path;
  auto model = LoadedModel::Load(load);
  if (!model.ok()) return model.status();
  std::ifstream file(text_path, std::ios::binary), asked(questions_path);
  // Enough for the tokens, not for all of a long file.
  std::string text(static_cast<size_t>(6 * n_tokens), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  std::vector<std::string> questions;
  for (std::string line; std::getline(asked, line);) questions.push_back(line);
  if (questions.empty()) return InvalidArgument("{} has no questions", questions_path);

  RecallOptions recall;
  auto spec = ParseRecallSpec("words");
  if (!spec.ok()) return spec.status();
  recall.spec = *spec;
  recall.dir = folder;
  SessionOptions options;
  auto policy = ParsePolicySpec("weir");
  if (!policy.ok()) return policy.status();
  options.policy = *policy;
  options.pot_slots = pot;
  if (Status status = AddRecall(recall, **model, &options); !status.ok()) return status;
  auto session = Session::Make((*model)->model(), (*model)->backend(), options);
  if (!session.ok()) return session.status();
  Ledger beside;
  auto archive = Archive::Make(ToArchiveOptions(recall, **model), beside);
  if (!archive.ok()) return archive.status();
  std::vector<int32_t> end;
  if (Status status = Fill(**model, text, n_tokens, 2 * pot, archive->get(), &end); !status.ok()) return status;
  Past past(**archive, n_tokens);
  Recaller recaller(recall.spec, past, (*model)->tokenizer(), nullptr);
  if (Status status = (*session)->Append(end); !status.ok()) return status;
  std::vector<uint8_t> state;
  if (Status status = (*session)->Save(&state); !status.ok()) return status;

  Times warm, dropped, first;
  if (Status status = Ask(**model, **session, recaller, questions[0], state, &first); !status.ok()) return status;
  for (const std::string& question : questions) {
    for (Times* times : {&warm, &dropped}) {
      if (times == &dropped) DropPages(folder);
      if (Status status = Ask(**model, **session, recaller, question, state, times); !status.ok()) return status;
    }
  }
  for (const auto& [name, times] : {std::pair<const char*, const Times&>("warm", warm), {"dropped", dropped}}) {
    std::printf(
        "{\"bench\":\"recall_first_token\",\"pages\":\"%s\",\"tokens\":%ld,\"archive_bytes\":%ld,\"pot\":%d,\"n\":%zu,"
        "\"recalled\":%.3f,\"found_and_read_ms\":{\"p50\":%.1f,\"p99\":%.1f},\"first_token_ms\":{\"p50\":%.1f,\"p99\":"
        "%.1f}}\n",
        name, static_cast<long>(n_tokens), static_cast<long>((*archive)->disk_bytes()), pot, questions.size(),
        static_cast<double>(times.n_recalled) / static_cast<double>(questions.size()), Percentile(times.search_ms, 0.5),
        Percentile(times.search_ms, 0.99), Percentile(times.first_token_ms, 0.5),
        Percentile(times.first_token_ms, 0.99));
  }
  return (*archive)->Remove();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 7) {
    return Die(InvalidArgument("usage: recall_first_token_bench MODEL.gguf TEXT QUESTIONS FOLDER [TOKENS] [POT]"));
  }
  const int64_t n_tokens = argc > 5 ? std::atoll(argv[5]) : 1000000;
  const int32_t pot = argc > 6 ? std::atoi(argv[6]) : 1024;
  if (n_tokens < 4096 || n_tokens > int64_t{1} << 30 || pot < 64 || pot > 8192) {
    return Die(InvalidArgument("expected 4096 tokens or more, and a pot of 64 to 8192"));
  }
  const weir::Status status = Run(argv[1], argv[2], argv[3], argv[4], n_tokens, pot);
  return status.ok() ? 0 : Die(status);
}
