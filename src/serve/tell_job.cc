// SPDX-License-Identifier: Apache-2.0
#include "serve/tell_job.h"

#include <vector>

namespace weir {

Status TellJob::ReadSome() {
  if (stage_ == Stage::kAnswer || reader_.may_stop()) WEIR_RETURN_IF_ERROR(CheckGoOn());
  if (stage_ == Stage::kBegin) {
    WEIR_RETURN_IF_ERROR(EndFrames());
    reader_.Start(AskInTurn(stream_->conversation, question_), stream_->conversation, nullptr, stream_->t_ms);
    stage_ = Stage::kQuestion;
  }
  if (reader_.done() && stage_ == Stage::kQuestion) {
    std::vector<PromptPart> answer;
    answer.push_back({stream_->conversation.Tell(answer_), false, /*whole=*/true, false});
    n_question_ = reader_.n_read();
    reader_.Start(std::move(answer), /*ends_prompt=*/false, nullptr, stream_->t_ms);
    stage_ = Stage::kAnswer;
  }
  return reader_.done() ? Status() : ReadStep();
}

Job::Step TellJob::Advance() {
  status_ = ReadSome();
  return status_.ok() && !(stage_ == Stage::kAnswer && reader_.done()) ? Step::kMore : Step::kDone;
}

void TellJob::Finish() {
  // An answer that was stopped in its middle goes without its end, as one that the model did not finish.
  if (session_ != nullptr && stage_ == Stage::kAnswer && !reader_.done()) stream_->conversation.Answered(false);
  SessionJob::Finish();  // before the client gets the event
  if (status_.ok()) {
    events.Push(Json());
  } else {
    events.Push(std::move(status_));
  }
}

}  // namespace weir
