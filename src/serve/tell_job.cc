// SPDX-License-Identifier: Apache-2.0
#include "serve/tell_job.h"

#include <vector>

namespace weir {

Status TellJob::ReadSome() {
  // A round is read whole once it has begun: half of one would leave the model in the middle of an answer.
  if (stage_ == Stage::kBegin) {
    WEIR_RETURN_IF_ERROR(CheckGoOn());
    reader_.Start(AskInTurn(stream_->conversation, question_), stream_->conversation, nullptr, stream_->t_ms);
    stage_ = Stage::kQuestion;
  }
  if (reader_.done() && stage_ == Stage::kQuestion) {
    std::vector<PromptPart> answer;
    answer.push_back({stream_->conversation.Tell(answer_), false, /*whole=*/true, false});
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
  SessionJob::Finish();  // before the client gets the event
  if (status_.ok()) {
    events.Push(Json());
  } else {
    events.Push(std::move(status_));
  }
}

}  // namespace weir
