// SPDX-License-Identifier: Apache-2.0
// A model that sits an exam: text is read into a session, questions are put to it, answers are greedy.
//
// Questions can be asked aside: the session's state is saved before and restored after, so that a question leaves no
// trace, and any number of questions, lengths and distances share one stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/conversation.h"
#include "engine/session.h"
#include "text/chat_template.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace weir {

struct Question {
  // With a chat template `chat` ends the user's turn and the model answers; without one the model continues
  // `completion`, which restates the beginning of what is looked for (small models copy better than they obey).
  std::string chat, completion;
  std::vector<int32_t> tokens;  // stand before either
  std::string gold;             // the right continuation of `completion`, its first space included; empty: not scored
  int32_t n_answer = 16;        // longest answer in tokens
  bool number = false;          // the answer is a number: it ends with its last digit
};

struct Reply {
  std::string text;
  bool has_gold_nll = false;
  bool end_token_read = false;  // the model ended its answer by itself
  double gold_nll = 0;  // -log P of Question::gold, mean over its tokens. Asked aside and without a template only
};

// What an exam cost, summed over everything since construction.
struct ExamCost {
  int64_t read_tokens = 0, answer_tokens = 0;
  double read_s = 0, answer_s = 0;
  ExamCost& operator+=(const ExamCost& other) {
    read_tokens += other.read_tokens;
    answer_tokens += other.answer_tokens;
    read_s += other.read_s;
    answer_s += other.answer_s;
    return *this;
  }
};

class Examinee {
 public:
  // `chat` may be nullptr: completion. All must outlive the object. The session needs SessionOptions::nll where
  // gold_nll is wanted (`score_gold`).
  Examinee(Session& session, const Tokenizer& tokenizer, const ChatTemplate* chat, bool score_gold,
           const std::atomic<bool>* stop);

  // Empties the session and reads what stands before the first text.
  Status Begin();
  // Says before the text what will be asked, for a policy whose probe has kQuestionMark in it; the others ignore it. Of
  // a question that the slots kept free for a probe do not hold, the end counts.
  Status Expect(const Question& question);
  // Reads text; it is kept back until `kFlushTokens` tokens wait, Flush() or a question comes, so that short texts are
  // read in whole chunks.
  Status Read(std::string_view text);
  Status ReadTokens(std::span<const int32_t> tokens);
  Status Flush();
  // The stream so far, for other trials that begin alike, and back to it: what follows is read as if all had been.
  Status SaveStream(std::vector<uint8_t>* out);
  Status RestoreStream(std::span<const uint8_t> saved);
  // Tokens of the stream so far, those kept back included.
  int64_t n_tokens() const { return session_.counters().seen + static_cast<int64_t>(pending_.size()); }
  std::vector<int32_t> Encode(std::string_view text) const;

  // Asks; question and answer become part of the stream. With a chat template what is read next is another user's turn.
  Result<Reply> Ask(const Question& question);
  // Saves what AskAside() returns to. Once for any number of questions; whatever is read next makes it stale.
  Status Mark();
  // Asks and goes back to the mark. REQUIRES: Mark() since the last Begin(), Read() or Ask().
  Result<Reply> AskAside(const Question& question);
  // The same, with a mark of its own.
  Result<Reply> MarkAndAsk(const Question& question);

  Session& session() { return session_; }
  const ExamCost& cost() const { return cost_; }
  bool chat() const { return chat_ != nullptr; }

 private:
  static constexpr size_t kFlushTokens = 4096;
  // Opens a user's turn; its words wait with what comes next.
  Conversation NewTalk() const;
  Status OpenTurn();
  // The question as tokens, template included.
  std::vector<int32_t> Asked(const Question& question) const;
  Status Append(std::span<const int32_t> tokens, Session::AppendOptions append);
  Result<Reply> Answer(std::span<const int32_t> tokens, const Question& question);

  Session& session_;
  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
  const bool score_gold_;
  const std::atomic<bool>* stop_;
  Conversation talk_;
  std::vector<int32_t> pending_;
  std::vector<uint8_t> mark_;
  ExamCost cost_;
};

// Reads and answers a few made-up tokens and empties the session: what an exam will take on this machine, in tokens per
// second, for estimates.
struct Rates {
  double read = 0, answer = 0;
};
Result<Rates> MeasureRates(Session& session);

}  // namespace weir
