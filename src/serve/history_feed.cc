// SPDX-License-Identifier: Apache-2.0
#include "serve/history_feed.h"

#include <utility>

#include "serve/routes/common.h"
#include "serve/session_job.h"
#include "serve/tell_job.h"
#include "serve/thread_book.h"

namespace weir {

HistoryFeed::~HistoryFeed() {
  if (running_) running_->cancel();
}

template <typename JobType>
Result<HistoryFeed::Running> HistoryFeed::Start(const std::shared_ptr<JobType>& job) {
  // Once a part is read, the rest is not refused because others wait.
  WEIR_RETURN_IF_ERROR(has_read_ ? host_.scheduler().PostAlways(job) : host_.scheduler().Post(job));
  return Running{.pop = [job]() -> std::optional<Status> {
                   const auto event = job->events.Pop(kLookAtClient);
                   return event ? std::optional(event->status()) : std::nullopt;
                 },
                 .cancel = [job] { job->Cancel(); },
                 .has_read = [job] { return job->has_read(); }};
}

void HistoryFeed::Append(std::string text) {
  if (text.empty()) return;
  steps_.push_back({[this, text = std::move(text)] {
                      EncodeOptions options;
                      options.add_special = false;
                      return Start(
                          std::make_shared<AppendJob>(host_, id_, host_.tokenizer().Encode(text, options), false));
                    },
                    {},
                    {}});
}

void HistoryFeed::Append(VisualInput visual) {
  // Moved into the job: a step starts once.
  steps_.push_back({[this, visual = std::make_shared<VisualInput>(std::move(visual))] {
                      return Start(std::make_shared<AppendJob>(host_, id_, std::move(*visual), false, -1));
                    },
                    {},
                    {}});
}

void HistoryFeed::Tell(std::string question, std::string answer) {
  steps_.push_back({[this, question = std::move(question), answer = std::move(answer)] {
                      return Start(std::make_shared<TellJob>(host_, id_, question, answer));
                    },
                    {},
                    {}});
}

void HistoryFeed::Note(std::string thread, std::vector<uint64_t> messages) {
  if (steps_.empty() || !steps_.back().messages.empty()) return;  // nothing was added
  steps_.back().thread = std::move(thread);
  steps_.back().messages = std::move(messages);
}

ApiError HistoryFeed::ErrorOf(const Status& status, bool overflow) const {
  const Status said = words_(status);
  if (overflow) return ContextLengthExceeded(said);
  // The session may have been handed over between two jobs, with what it read.
  const bool stopped = status.code() == StatusCode::kCancelled || status.code() == StatusCode::kNotFound;
  return has_read_ && stopped ? CutShort(said) : FromStatus(said);
}

std::optional<ApiError> HistoryFeed::Go(Clock::time_point until) {
  while (!steps_.empty()) {
    if (!running_) {
      if (!wanted_()) return ErrorOf(Cancelled("the client disconnected"), false);
      auto started = steps_.front().start();
      if (!started.ok()) return ErrorOf(started.status(), false);
      running_ = *std::move(started);
    }
    const std::optional<Status> ended = running_->pop();
    if (!ended) {
      if (!wanted_()) running_->cancel();
      if (Clock::now() >= until) return std::nullopt;
      continue;
    }
    has_read_ |= running_->has_read();
    running_.reset();
    if (!ended->ok()) return ErrorOf(*ended, ended->code() == StatusCode::kOverBudget);
    const Step& step = steps_.front();
    if (!step.messages.empty()) host_.threads().Read(step.thread, step.messages);
    steps_.pop_front();
    if (!steps_.empty() && Clock::now() >= until) return std::nullopt;
  }
  return ApiError{0, "", ""};
}

}  // namespace weir
