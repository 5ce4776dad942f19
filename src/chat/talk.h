// SPDX-License-Identifier: Apache-2.0
// A blocking conversation with one session: opens turns and asks questions in the words of the chat template. Answers
// come from Generate() (chat/generate.h); report how they ended with Talk::Answered().
//
// The step-by-step variant for servers is chat/prompt_reader.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "chat/conversation.h"
#include "chat/prompt_reader.h"
#include "engine/session.h"
#include "recall/recaller.h"
#include "text/sampler.h"

namespace weir {

struct TalkReading {
  int64_t t_src_ms = 0;                            // of the tokens that are read
  bool pinned = false;                             // Read() only
  bool in_one = false;                             // Ask() only: the question and the template's words are one append
  const std::atomic<bool>* stop = nullptr;         // stops the reading between two chunks
  std::function<void(int64_t n_tokens)> progress;  // after each chunk: tokens read since the call
};

// Takes back what was brought back for a round's question, however the round ends.
class ExcerptScope {
 public:
  explicit ExcerptScope(Session& session) : session_(session) {}
  ~ExcerptScope() { (void)session_.TakeBackExcerpt(); }
  ExcerptScope(const ExcerptScope&) = delete;
  ExcerptScope& operator=(const ExcerptScope&) = delete;

 private:
  Session& session_;
};

class Talk {
 public:
  // Session and sampler must outlive the object; the sampler's history receives every token that is read here.
  Talk(Session& session, Sampler& sampler, Conversation conversation)
      : session_(session), sampler_(sampler), conversation_(std::move(conversation)) {}

  Conversation& conversation() { return conversation_; }
  const Conversation& conversation() const { return conversation_; }

  // Reads tokens outside any turn, or as part of the open turn. Errors of Session::Append().
  Status Read(std::span<const int32_t> tokens, const TalkReading& reading = {});
  // Reads the template's words that open a user's turn; does nothing if one is open.
  Status OpenTurn(const TalkReading& reading = {});
  // From now on, what a question is about is brought back before it is read. nullptr: nothing is. Must outlive the
  // object or the next call.
  void SetRecaller(Recaller* recaller) { recaller_ = recaller; }
  // Opens a turn if none is open and reads the question and the template's words after it; an answer of up to n_answer
  // tokens (-1: any length) follows. kCancelled if reading.stop ended it: the part of the question that was read stays,
  // and the turn is open. Errors of Session::BeginRound() and Append(). `report` (may be nullptr) as for
  // Conversation::Ask().
  Status Ask(const std::string& question, int64_t n_answer, const TalkReading& reading = {},
             EncodeReport* report = nullptr);
  // Call after the answer: whether its end token was read. Takes back what was brought back for it.
  Status Answered(bool end_token_read);
  // What was brought back for the last question.
  const Recalled& recalled() const { return recalled_; }
  // Of the last question.
  int64_t n_question_tokens() const { return n_question_tokens_; }

 private:
  Status ReadTurn(TurnParts turn, const TalkReading& reading);

  Session& session_;
  Sampler& sampler_;
  Conversation conversation_;
  Recaller* recaller_ = nullptr;
  Recalled recalled_;
  int64_t n_question_tokens_ = 0;
};

}  // namespace weir
