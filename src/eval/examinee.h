// SPDX-License-Identifier: Apache-2.0
// A model under test: reads text into a session and answers questions greedily.
//
// Questions can be asked "aside": the session's state is saved before and restored after, so that a question leaves no
// trace and any number of questions, lengths and distances share one stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/conversation.h"
#include "engine/session.h"
#include "recall/stream_recall.h"
#include "text/chat_template.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace weir {

struct Question {
  // With a chat template `chat` ends the user's turn and the model answers. Without one the model continues
  // `completion`, which restates the beginning of the expected text (small models copy better than they follow
  // instructions).
  std::string chat, completion;
  std::vector<int32_t> tokens;  // read before either
  std::string lead;             // with a chat template: begins the model's answer, which continues it
  std::string gold;             // the right continuation of `completion`, including its first space; empty: not scored
  int32_t n_answer = 16;        // longest answer in tokens
  bool number = false;          // the answer is a number: it ends with its last digit
  // The tokens of the stream that answer it, for recall's exam selectors; nullopt: the suite does not know.
  std::optional<std::vector<SeqSpan>> where = std::nullopt;
};

struct Reply {
  std::string text;
  bool has_gold_nll = false;
  bool end_token_read = false;  // the model ended its answer with an end token
  Recalled recalled;            // what was brought back for the question
  double gold_nll = 0;  // -log P of Question::gold, mean over its tokens. Asked aside and without a template only
};

// The cost of an exam, summed since construction.
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
  // `chat` may be nullptr: completion. All must outlive the object. The session needs SessionOptions::nll if gold_nll
  // is required (`score_gold`).
  Examinee(Session& session, const Tokenizer& tokenizer, const ChatTemplate* chat, bool score_gold,
           const std::atomic<bool>* stop);

  // From now on, what a question is about is brought back first. nullptr: nothing is. Must outlive the object.
  void SetRecall(StreamRecall* recall) { recall_ = recall; }
  bool recalls() const { return recall_ != nullptr; }
  // Resets the session and reads the template's words before the first text.
  Status Begin();
  // Announces the question before the text is read, for a policy whose probe has kQuestionMark in it; other policies
  // ignore it. If the question does not fit into the slots kept free for a probe, its end is used.
  Status Expect(const Question& question);
  // Reads text. It is buffered until `kFlushTokens` tokens wait, Flush() is called or a question is asked, so that
  // short texts are read in whole chunks.
  Status Read(std::string_view text);
  Status ReadTokens(std::span<const int32_t> tokens);
  Status Flush();
  // Saves the stream so far for other trials with the same beginning, and restores it: reading then continues as if all
  // of it had been read.
  Status SaveStream(std::vector<uint8_t>* out);
  Status RestoreStream(std::span<const uint8_t> saved);
  // Tokens of the stream so far, including buffered ones.
  int64_t n_tokens() const { return session_.counters().seen + static_cast<int64_t>(pending_.size()); }
  std::vector<int32_t> Encode(std::string_view text) const;

  // Asks a question; question and answer become part of the stream. With a chat template the next text begins a new
  // user's turn.
  Result<Reply> Ask(const Question& question);
  // The same, and what was read since the last answer is part of the question's prompt, as far as it still waits
  // (kFlushTokens) and nothing is brought back.
  Result<Reply> AskRound(const Question& question);
  // Saves the state that AskAside() returns to, for any number of questions. Any later reading invalidates it.
  Status Mark();
  // Asks and returns to the mark. REQUIRES: Mark() since the last Begin(), Read() or Ask().
  Result<Reply> AskAside(const Question& question);
  // Sets a mark, then asks aside.
  Result<Reply> MarkAndAsk(const Question& question);

  Session& session() { return session_; }
  const ExamCost& cost() const { return cost_; }
  bool chat() const { return chat_ != nullptr; }

 private:
  static constexpr size_t kFlushTokens = 4096;
  // Opens a user's turn; its words are buffered with the text that follows.
  Conversation NewTalk() const;
  Status OpenTurn();
  Result<Reply> AskAfter(std::vector<int32_t> tokens, const Question& question);
  // Brings back what a question is about.
  Result<Recalled> Bring(const Question& question);
  Status AnswerAside(std::span<const int32_t> asked, const Question& question, Reply* reply);
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
  StreamRecall* recall_ = nullptr;
  ExamCost cost_;
};

// Reads and generates a few made-up tokens, then resets the session: measures this machine's tokens per second, to
// estimate the duration of an exam.
struct Rates {
  double read = 0, answer = 0;
};
Result<Rates> MeasureRates(Session& session);

}  // namespace weir
