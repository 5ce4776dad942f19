// SPDX-License-Identifier: Apache-2.0
// Selectors: which passages of a stream a question is about.
//
// To add one, add a file src/recall/selectors/my.cc whose first line is `// weir-plugin: selector` and which
// defines `extern const SelectorInfo kMySelector`; the build finds it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "recall/block.h"
#include "recall/question_vectors.h"

namespace weir {

// Tokens of a stream.
struct SeqSpan {
  int64_t seq = 0, seq_end = 0;
};

struct RecallQuery {
  std::string_view text;  // the question
  int64_t held_from = 0;  // what the pot holds from this seq on need not be brought back
  int64_t n_seen = 0;     // tokens of the stream so far
  int64_t t_now_ms = 0;   // stream time
  bool answers = false;   // the model's own answers may be brought back
  int32_t most = 2;       // passages at most
  // For SelectorInfo::needs_keys: the question's queries, and the keys of the blocks.
  const QuestionVectors* vectors = nullptr;
  BlockSource* keys = nullptr;
  // What answers the question, for selectors of exams (SelectorInfo::exam); nullopt: nobody knows.
  std::optional<std::span<const SeqSpan>> gold = std::nullopt;

  // Whether a block may be brought back: an answer only if wanted, and what the user said if it is no question. An
  // earlier question would be found before everything that answers it.
  bool MayBring(const Block& block) const {
    if (block.role == Role::kQuestion) return !Asks(block.text);
    return block.role == Role::kInput || answers;
  }
  // Whether the last sentence that has an end ends with a question mark.
  static bool Asks(std::string_view text) {
    const size_t end = text.find_last_of(".!?");
    return text.rfind("\uFF1F") != std::string_view::npos || (end != std::string_view::npos && text[end] == '?');
  }
};

// Consecutive blocks that answer a question: text, with a block before and after it for whole sentences, or words and
// the pictures or frames behind them.
struct Passage {
  BlockPlace from = 0;   // the first block to read
  int32_t n_before = 0;  // blocks from there to the passage itself: 0 or 1
  int32_t n_blocks = 1;  // of the passage
  int64_t seq = 0, seq_end = 0;
  int64_t t_ms = 0;
  int64_t n_rows = 0;  // of its pictures
  double score = 0;    // 0 to 1: how much of the question it matches. The gate compares it
  bool held = false;   // the pot holds it: nothing to bring back, but a measure for the others
  bool whole = false;  // all of its sentences are brought back, not only the one that shares most words
};

class Selector {
 public:
  virtual ~Selector() = default;
  // Fixed memory of a search, in bytes, taken when the selector is made; reserved in the session's ledger before.
  virtual int64_t MemoryBytes() const = 0;
  // The best passages, best first, those that the pot holds among them; none that overlap. Errors of the source.
  virtual Result<std::vector<Passage>> Select(const RecallQuery& query, BlockSource& blocks) = 0;
};

struct SelectorInfo {
  const char* name;                          // = file name
  const char* summary;                       // one line for a list
  const char* source = "";                   // paper, or "" for well-known methods
  std::span<const OptionInfo> options = {};  // beside those that every selector has (recall/spec.h)
  bool needs_keys = false;                   // RecallQuery::vectors and ::keys
  std::unique_ptr<Selector> (*make)(const Options& options);
  bool exam = false;  // it needs RecallQuery::gold: only an exam can use it
};

// Every selector of the folder, sorted by name. (Generated.)
std::span<const SelectorInfo* const> AllSelectorInfos();

}  // namespace weir
