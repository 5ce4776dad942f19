// SPDX-License-Identifier: Apache-2.0
#include "chat/talk.h"

#include <utility>

namespace weir {

Status Talk::Read(std::span<const int32_t> tokens, const TalkReading& reading) {
  for (const int32_t id : tokens) sampler_.Accept(id);
  Session::AppendOptions append;
  append.t_src_ms = reading.t_src_ms;
  append.pinned = reading.pinned;
  append.stop = reading.stop;
  append.progress = reading.progress;
  return session_.Append(tokens, append);
}

Status Talk::ReadTurn(TurnParts turn, const TalkReading& reading) {
  const std::vector<int32_t> tokens = TokensOf(turn.parts);
  PromptReader reader;
  reader.Start(std::move(turn), conversation_, nullptr, reading.t_src_ms);
  Status status;
  while (status.ok() && !reader.done()) {
    if (reading.stop != nullptr && *reading.stop && reader.may_stop()) {
      status = Cancelled("stopped while a question was read");
    } else {
      status = reader.Step(session_);
      if (reading.progress) reading.progress(reader.n_read());
    }
  }
  for (int64_t i = 0; i < reader.n_read(); ++i) sampler_.Accept(tokens[static_cast<size_t>(i)]);
  return status;
}

Status Talk::OpenTurn(const TalkReading& reading) {
  if (conversation_.turn_open()) return Status();
  return ReadTurn(weir::OpenTurn(conversation_, std::nullopt), reading);
}

Status Talk::Ask(const std::string& question, int64_t n_answer, const TalkReading& reading, EncodeReport* report) {
  TalkReading head;
  head.t_src_ms = reading.t_src_ms;
  WEIR_RETURN_IF_ERROR(OpenTurn(head));
  if (recaller_ != nullptr) {
    WEIR_RETURN_IF_ERROR(recaller_->TakeBack(session_));  // of a question that was stopped
    WEIR_ASSIGN_OR_RETURN(recalled_, recaller_->TryToBring(session_, question, reading.t_src_ms));
    if (recalled_.n_tokens > 0) conversation_.TextRead();
  }
  TurnParts asked = AskInTurn(conversation_, question, reading.in_one, report);
  const std::vector<int32_t> tokens = TokensOf(asked.parts);
  n_question_tokens_ = std::ssize(tokens);
  Status status = session_.BeginRound(tokens, n_answer);
  if (status.ok()) status = ReadTurn(std::move(asked), reading);
  if (status.ok()) return status;
  // A question that was stopped needs nothing brought back, and what comes next may be none.
  session_.CancelQuestion();
  if (recaller_ != nullptr) WEIR_RETURN_IF_ERROR(recaller_->TakeBack(session_));
  return status;
}

Status Talk::Answered(bool end_token_read) {
  conversation_.Answered(end_token_read);
  return recaller_ == nullptr ? Status() : recaller_->TakeBack(session_);
}

}  // namespace weir
