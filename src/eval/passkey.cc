// SPDX-License-Identifier: Apache-2.0
#include "eval/passkey.h"

#include <fmt/core.h>
#include <algorithm>

#include "eval/recalled.h"
#include "eval/text_match.h"

namespace weir {
namespace {

constexpr const char* kTask =
    "Somewhere in the following text, which is otherwise of no importance, a pass key is hidden. Find it and remember "
    "it. I "
    "will ask for it.\n";
// Five short sentences as in the published test, in our own words. Do not change them: other words are another test.
constexpr const char* kFiller =
    "Grass is green. The sky above is blue. The sun is yellow. Off we go. And then we are back again. ";

void Count(const Examinee& examinee, const Question& question, const Reply& reply, int32_t key, Cell* cell) {
  cell->score.Add(FirstInteger(reply.text) == key ? 1 : 0);
  if (reply.has_gold_nll) cell->gold_nll.Add(reply.gold_nll);
  CountRecalled(examinee, question, reply, question.gold, cell);
}

}  // namespace

PasskeyStream::PasskeyStream(const Examinee& examinee, uint64_t seed) {
  key_ = 1 + static_cast<int32_t>(Rng(seed).Below(50000));
  task_ = examinee.Encode(kTask);
  sentence_ = examinee.Encode(fmt::format("\nThe pass key is {}. Do not forget it: {} is the pass key.\n", key_, key_));
  filler_ = examinee.Encode(kFiller);
}

std::vector<int32_t> PasskeyStream::Tokens(int64_t n_before, int64_t first, int64_t end) const {
  const int64_t n_task = static_cast<int64_t>(task_.size()), n_sentence = static_cast<int64_t>(sentence_.size()),
                n_filler = static_cast<int64_t>(filler_.size()), key_begin = n_task + n_before,
                key_end = key_begin + n_sentence;
  std::vector<int32_t> out;
  out.reserve(static_cast<size_t>(std::max<int64_t>(end - first, 0)));
  for (int64_t i = first; i < end; ++i) {
    out.push_back(i < n_task      ? task_[i]
                  : i < key_begin ? filler_[(i - n_task) % n_filler]
                  : i < key_end   ? sentence_[i - key_begin]
                                  : filler_[(i - key_end) % n_filler]);
  }
  return out;
}

Question PasskeyStream::question() const {
  Question out;
  out.completion = "\nWhat is the pass key? The pass key is";
  out.chat = "\nWhat is the pass key? Answer with the number.";
  out.gold = " " + std::to_string(key_);
  out.number = true;
  return out;
}

Question PasskeyStream::FillerQuestion() {
  Question out;
  out.completion = "\nWhat colour is grass? Grass is";
  out.chat = "\nWhat colour is grass? Answer with a word.";
  out.n_answer = 2;
  return out;
}

Status CheckPasskeyOptions(const PasskeyOptions& options, bool growing) {
  constexpr int64_t kShortest = 128;
  if (options.lengths.empty() || (growing ? options.key_at.empty() : options.depths.empty()) || options.n < 1 ||
      options.n_answer < 1) {
    return InvalidArgument("lengths, depths (or key positions), trials and answer tokens are needed");
  }
  for (const int64_t length : options.lengths) {
    if (length < kShortest) {
      return InvalidArgument("a length of {} tokens: expected at least {}", length, kShortest);
    }
  }
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 1)) return InvalidArgument("a depth of {:g}: expected 0 to 1", depth);
  }
  for (const int64_t at : options.key_at) {
    if (at < 0) return InvalidArgument("a key after {} tokens: expected at least 0", at);
  }
  return Status();
}

Status RunPasskeyGrid(Examinee& examinee, const PasskeyOptions& options, const SuiteHooks& hooks) {
  WEIR_RETURN_IF_ERROR(CheckPasskeyOptions(options, false));
  const int64_t n_cells = static_cast<int64_t>(options.lengths.size() * options.depths.size());
  int64_t asked = 0;
  for (size_t l = 0; l < options.lengths.size(); ++l) {
    for (size_t d = 0; d < options.depths.size(); ++d) {
      const int64_t length = options.lengths[l];
      Cell cell;
      cell.task = "grid";
      cell.numbers = {{"length", static_cast<double>(length)}, {"depth", options.depths[d]}};
      const auto trial = [&](int32_t t) -> Status {
        WEIR_RETURN_IF_ERROR(examinee.Begin());
        const uint64_t idx = (static_cast<uint64_t>(t) << 16) + l * options.depths.size() + d;
        const PasskeyStream stream(examinee, TrialRng(options.seed, idx).Next());
        const int64_t begin = examinee.n_tokens(), n_filler = std::max<int64_t>(length - stream.n_fixed() - begin, 0),
                      n_before = static_cast<int64_t>(options.depths[d] * static_cast<double>(n_filler));
        cell.tokens_back.Add(static_cast<double>(n_filler - n_before));
        Question question = stream.question();
        question.where = {{stream.KeySpan(begin, n_before)}};
        question.n_answer = options.n_answer;
        WEIR_RETURN_IF_ERROR(examinee.Expect(question));
        WEIR_RETURN_IF_ERROR(examinee.ReadTokens(stream.Tokens(n_before, 0, n_filler + stream.n_fixed())));
        WEIR_ASSIGN_OR_RETURN(const Reply reply, examinee.MarkAndAsk(question));
        Count(examinee, question, reply, stream.key(), &cell);
        if (hooks.progress) hooks.progress(++asked, n_cells * options.n);
        return Status();
      };
      Status status;
      for (int32_t t = 0; t < options.n && status.ok(); ++t) status = trial(t);
      ReportAll({cell}, hooks);
      WEIR_RETURN_IF_ERROR(status);
    }
  }
  return Status();
}

namespace {

// Of a key that comes after length `l`: an error if no length holds it.
Status DoesNotFit(const std::vector<int64_t>& lengths, int64_t key_at, size_t l) {
  if (l + 1 < lengths.size()) return Status();
  return InvalidArgument("a key after {} tokens of filler does not fit into {} tokens: ask for a longer length", key_at,
                         lengths.back());
}

// A trial whose rounds stay: the key after `key_at` tokens of filler is asked for in round `last`, at its length.
Status CarriedTrial(Examinee& examinee, const PasskeyOptions& options, const std::vector<int64_t>& lengths,
                    int64_t key_at, size_t last, uint64_t seed, Cell* cell) {
  WEIR_RETURN_IF_ERROR(examinee.Begin());
  const int64_t begin = examinee.n_tokens();
  const PasskeyStream stream(examinee, seed);
  const auto n_since_key = [&](int64_t at) { return at - stream.n_fixed() - key_at; };  // of filler
  if (n_since_key(lengths[last] - begin) < 0) return DoesNotFit(lengths, key_at, last);
  Question question = stream.question();
  question.n_answer = options.n_answer;
  WEIR_RETURN_IF_ERROR(examinee.Expect(question));
  int64_t key_end = -1;  // in the stream, questions and answers before it included
  for (size_t round = 0; round <= last; ++round) {
    const int64_t at = round == 0 ? 0 : lengths[round - 1] - begin, end = lengths[round] - begin;
    WEIR_RETURN_IF_ERROR(examinee.ReadTokens(stream.Tokens(key_at, at, end)));
    if (key_end < 0 && n_since_key(end) >= 0) key_end = examinee.n_tokens() - n_since_key(end);
    if (round == last) break;
    WEIR_RETURN_IF_ERROR(examinee.AskRound(PasskeyStream::FillerQuestion()).status());
    if (!examinee.chat()) WEIR_RETURN_IF_ERROR(examinee.Read("\n"));
  }
  const SeqSpan key = stream.KeySpan(0, key_at);
  question.where = {{{key_end - (key.seq_end - key.seq), key_end}}};
  cell->tokens_back.Add(static_cast<double>(examinee.n_tokens() - key_end));
  WEIR_ASSIGN_OR_RETURN(const Reply reply, examinee.AskRound(question));
  Count(examinee, question, reply, stream.key(), cell);
  return Status();
}

Status RunPasskeyCarried(Examinee& examinee, const PasskeyOptions& options, const std::vector<int64_t>& lengths,
                         const SuiteHooks& hooks) {
  int64_t asked = 0;
  for (size_t k = 0; k < options.key_at.size(); ++k) {
    std::vector<Cell> cells(lengths.size());
    Status status;
    for (size_t l = 0; l < lengths.size() && status.ok(); ++l) {
      cells[l].task = "carried";
      cells[l].numbers = {{"key_at", static_cast<double>(options.key_at[k])},
                          {"length", static_cast<double>(lengths[l])}};
      for (int32_t t = 0; t < options.n && status.ok(); ++t) {
        // The same keys as asked aside.
        const uint64_t seed = TrialRng(options.seed, (static_cast<uint64_t>(t) << 16) + k).Next();
        status = CarriedTrial(examinee, options, lengths, options.key_at[k], l, seed, &cells[l]);
        if (status.ok() && hooks.progress) {
          hooks.progress(++asked, static_cast<int64_t>(lengths.size() * options.key_at.size()) * options.n);
        }
      }
    }
    ReportAll(cells, hooks);
    WEIR_RETURN_IF_ERROR(status);
  }
  return Status();
}

}  // namespace

Status RunPasskeyGrowing(Examinee& examinee, const PasskeyOptions& options, const SuiteHooks& hooks) {
  WEIR_RETURN_IF_ERROR(CheckPasskeyOptions(options, true));
  std::vector<int64_t> lengths = options.lengths;
  std::sort(lengths.begin(), lengths.end());
  if (options.carry) return RunPasskeyCarried(examinee, options, lengths, hooks);
  int64_t asked = 0;
  for (size_t k = 0; k < options.key_at.size(); ++k) {
    std::vector<Cell> cells(lengths.size());
    for (size_t l = 0; l < lengths.size(); ++l) {
      cells[l].task = "growing";
      cells[l].numbers = {{"key_at", static_cast<double>(options.key_at[k])},
                          {"length", static_cast<double>(lengths[l])}};
    }
    std::vector<uint8_t> before_key;  // the first trial's stream at n_shared, a whole number of pieces
    int64_t n_shared = 0;
    const auto trial = [&](int32_t t) -> Status {
      WEIR_RETURN_IF_ERROR(examinee.Begin());
      const int64_t begin = examinee.n_tokens();
      const PasskeyStream stream(examinee, TrialRng(options.seed, (static_cast<uint64_t>(t) << 16) + k).Next());
      Question question = stream.question();
      question.where = {{stream.KeySpan(begin, options.key_at[k])}};
      question.n_answer = options.n_answer;
      WEIR_RETURN_IF_ERROR(examinee.Expect(question));
      if (lengths.back() - begin - stream.n_fixed() < options.key_at[k]) {
        return DoesNotFit(lengths, options.key_at[k], lengths.size() - 1);
      }
      constexpr int64_t kPiece = 4096;  // a long stream is never held whole
      int64_t at = 0;
      if (t > 0 && n_shared > 0) {
        WEIR_RETURN_IF_ERROR(examinee.RestoreStream(before_key));
        at = n_shared;
      } else if (options.n > 1) {
        n_shared = stream.n_until_key(options.key_at[k]) / kPiece * kPiece;
        for (; at < n_shared; at += kPiece) {
          WEIR_RETURN_IF_ERROR(examinee.ReadTokens(stream.Tokens(options.key_at[k], at, at + kPiece)));
        }
        if (n_shared > 0) WEIR_RETURN_IF_ERROR(examinee.SaveStream(&before_key));
      }
      for (size_t l = 0; l < lengths.size(); ++l) {
        const int64_t end = lengths[l] - begin, tokens_back = end - stream.n_fixed() - options.key_at[k];
        if (tokens_back < 0) continue;  // the key has not come yet
        for (; at < end; at = std::min(at + kPiece, end)) {
          WEIR_RETURN_IF_ERROR(examinee.ReadTokens(stream.Tokens(options.key_at[k], at, std::min(at + kPiece, end))));
        }
        cells[l].tokens_back.Add(static_cast<double>(tokens_back));
        WEIR_ASSIGN_OR_RETURN(const Reply reply, examinee.MarkAndAsk(question));
        Count(examinee, question, reply, stream.key(), &cells[l]);
        if (hooks.progress)
          hooks.progress(++asked, static_cast<int64_t>(lengths.size() * options.key_at.size()) * options.n);
      }
      return Status();
    };
    Status status;
    for (int32_t t = 0; t < options.n && status.ok(); ++t) status = trial(t);
    ReportAll(cells, hooks);
    WEIR_RETURN_IF_ERROR(status);
  }
  return Status();
}

}  // namespace weir
