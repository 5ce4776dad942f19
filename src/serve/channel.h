// SPDX-License-Identifier: Apache-2.0
// What the engine's thread says to the thread of one request: a queue of events that never makes the engine wait.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace weir {

template <typename T>
class Channel {
 public:
  void Push(T event) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(std::move(event));
    }
    ready_.notify_one();
  }
  // The oldest event; nullopt when none came in that time.
  std::optional<T> Pop(std::chrono::milliseconds wait) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!ready_.wait_for(lock, wait, [this] { return !events_.empty(); })) return std::nullopt;
    T event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  // Events that nobody took yet.
  size_t size() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return events_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> events_;
};

}  // namespace weir
