// SPDX-License-Identifier: Apache-2.0
// A queue of events from the engine's thread to the thread of one request. It never blocks the engine.
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
  // The oldest event; nullopt if none arrived within `wait`.
  std::optional<T> Pop(std::chrono::milliseconds wait) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!ready_.wait_for(lock, wait, [this] { return !events_.empty(); })) return std::nullopt;
    T event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  // Number of queued events.
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
