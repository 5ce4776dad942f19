// SPDX-License-Identifier: Apache-2.0
// A conversation held with one session by a caller that waits: opens turns and asks, word for word as the template has
// them. Answers are written by Generate() (chat/generate.h); Conversation::Answered() is told how they ended.
//
// What a server does step by step, between other work, is chat/prompt_reader.h.
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
#include "text/sampler.h"

namespace weir {

struct TalkReading {
  int64_t t_src_ms = 0;                            // of the tokens that are read
  bool pinned = false;                             // Read() only
  bool in_one = false;                             // Ask() only: the question and the template's words are one append
  const std::atomic<bool>* stop = nullptr;         // ends the reading between two chunks
  std::function<void(int64_t n_tokens)> progress;  // after each chunk: tokens read since the call
};

class Talk {
 public:
  // Session and sampler outlive the object; the sampler hears of every token that is read here.
  Talk(Session& session, Sampler& sampler, Conversation conversation)
      : session_(session), sampler_(sampler), conversation_(std::move(conversation)) {}

  Conversation& conversation() { return conversation_; }
  const Conversation& conversation() const { return conversation_; }

  // Reads tokens that belong to no turn, or to the one that is open. Errors of Session::Append().
  Status Read(std::span<const int32_t> tokens, const TalkReading& reading = {});
  // Reads the template's words that open a user's turn; nothing when one is open.
  Status OpenTurn(const TalkReading& reading = {});
  // Opens a turn where none is open and reads the question with the template's words behind it; an answer of up to
  // n_answer tokens (-1: any length) follows. kCancelled when reading.stop ended it: what was read of the question
  // stays, and the turn is open. Errors of Session::BeginRound() and Append(). `report` (may be nullptr) as for
  // Conversation::Ask().
  Status Ask(const std::string& question, int64_t n_answer, const TalkReading& reading = {},
             EncodeReport* report = nullptr);
  // Of the question that was asked last.
  int64_t n_question_tokens() const { return n_question_tokens_; }

 private:
  Status ReadTurn(TurnParts turn, const TalkReading& reading);

  Session& session_;
  Sampler& sampler_;
  Conversation conversation_;
  int64_t n_question_tokens_ = 0;
};

}  // namespace weir
