// SPDX-License-Identifier: Apache-2.0
// What a session has to read before a question: texts, pictures and rounds, one job after another. The caller decides
// how long it waits at a time, so that a stream can say in between that it lives.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "serve/api_error.h"
#include "serve/host.h"
#include "serve/visual_input.h"

namespace weir {

class HistoryFeed {
 public:
  // Rewords an error for the client.
  using Words = std::function<Status(const Status&)>;
  // `wanted`: whether the client waits. The host must outlive the object.
  HistoryFeed(Host& host, std::string id, Words words, std::function<bool()> wanted)
      : host_(host), id_(std::move(id)), words_(std::move(words)), wanted_(std::move(wanted)) {}
  ~HistoryFeed();
  HistoryFeed(const HistoryFeed&) = delete;
  HistoryFeed& operator=(const HistoryFeed&) = delete;

  // In the order of reading. An empty text is none.
  void Append(std::string text);
  void Append(VisualInput visual);
  void Tell(std::string question, std::string answer);
  // What was added since the last call is these messages of the session `thread` (serve/thread_book.h): once it is
  // read, the session has them.
  void Note(std::string thread, std::vector<uint64_t> messages);

  // Reads until everything is read (http 0), an error comes, the client has gone, or the moment has come (nullopt).
  // Must not be called again after the first three. The request's own thread.
  std::optional<ApiError> Go(Clock::time_point until);
  // Whether the session has read any of it.
  bool has_read() const { return has_read_; }

 private:
  // A job at work, whatever its class.
  struct Running {
    std::function<std::optional<Status>()> pop;  // its event, or nullopt after a moment
    std::function<void()> cancel;
    std::function<bool()> has_read;
  };
  struct Step {
    std::function<Result<Running>()> start;
    std::string thread;
    std::vector<uint64_t> messages;
  };
  template <typename JobType>
  Result<Running> Start(const std::shared_ptr<JobType>& job);
  ApiError ErrorOf(const Status& status, bool overflow) const;

  Host& host_;
  const std::string id_;
  const Words words_;
  const std::function<bool()> wanted_;
  std::deque<Step> steps_;
  std::optional<Running> running_;  // the first of the steps
  bool has_read_ = false;
};

}  // namespace weir
