// SPDX-License-Identifier: Apache-2.0
// Reads a round of a conversation that took place elsewhere into a stream session: a question and its answer.
#pragma once

#include <string>
#include <utility>

#include "serve/session_job.h"

namespace weir {

// Both are encoded on the engine's thread: the caller limits their length. The channel receives one event: null, or an
// error.
class TellJob : public SessionJob {
 public:
  TellJob(Host& host, std::string id, std::string question, std::string answer)
      : SessionJob(host, std::move(id)), question_(std::move(question)), answer_(std::move(answer)) {}
  Step Advance() override;
  void Finish() override;
  void Dropped(const Status& why) override { events.Push(why); }

  Channel<Result<Json>> events;
  // Whether any of it was read. Call after the event.
  bool has_read() const { return n_question_ + reader_.n_read() > 0; }

 private:
  Status ReadSome();

  const std::string question_, answer_;
  enum class Stage { kBegin, kQuestion, kAnswer };
  Stage stage_ = Stage::kBegin;
  int64_t n_question_ = 0;
  Status status_;
};

}  // namespace weir
