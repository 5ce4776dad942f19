// SPDX-License-Identifier: Apache-2.0
// The user's command for events (`weir watch --then`): run one event after another, beside the stream, which never
// waits for it.
//
// The command is what the user wrote, word for word, for /bin/sh. Nothing of an event becomes part of it: the event is
// JSON on its standard input, and variables of its environment. What it prints goes to standard error.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"

namespace weir::app {

class EventCommand {
 public:
  // Events that may wait; more, and the oldest is dropped and counted.
  static constexpr size_t kMostWaiting = 64;
  static constexpr int64_t kMostBytes = 256 << 10;  // of them together
  // The most memory that they take, and one for which the command runs.
  static constexpr int64_t kBytes = kMostBytes + (64 << 10);

  // A run that takes longer than limit_ms is killed, with everything it started in its process group.
  EventCommand(std::string command, int64_t limit_ms);
  // Kills a command that is running.
  ~EventCommand();
  EventCommand(const EventCommand&) = delete;
  EventCommand& operator=(const EventCommand&) = delete;

  struct Event {
    std::string name;  // for warnings
    std::vector<std::pair<std::string, std::string>> environment;
    std::string input;
    int64_t bytes() const;
  };
  void Post(Event event);
  // Waits until the command ran for everything that waits, or the program is being stopped.
  void End();

  struct Counters {
    int64_t run = 0;      // that are over, also those that were ended or could not be started
    int64_t failed = 0;   // of them, all that did not end by themselves with exit code 0
    int64_t dropped = 0;  // events for which it never ran
  };
  Counters counters() const;

 private:
  void Work();
  Status Run(const Event& event);

  const std::string command_;
  const int64_t limit_ms_;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> waiting_;
  int64_t bytes_ = 0;  // of them
  bool running_ = false;
  Counters counters_;
  std::thread thread_;
};

}  // namespace weir::app
