// SPDX-License-Identifier: Apache-2.0
// Events of one session for readers that come and go: the newest few are kept, so that a reader whose connection broke
// goes on where it was.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "io/json.h"

namespace weir {

// All methods: any thread.
class EventRing {
 public:
  static constexpr size_t kMost = 256;

  struct Event {
    int64_t id = 0;
    std::string name, json;
    int64_t n_missed = 0;  // events between the one that was asked from and this one that are no longer kept
  };

  // REQUIRES: ids are 1, 2, ... in order. Never waits for a reader.
  void Push(int64_t id, std::string name, std::string json);
  // The first event after the one with this id, if it comes within `wait`. Ids that were never given count as none.
  std::optional<Event> After(int64_t id, std::chrono::milliseconds wait);
  // The id of the newest event; 0 before the first.
  int64_t newest() const;
  // Nothing comes any more; readers that wait are told at once.
  void Close();
  bool closed() const;

  // What is kept, as JSON. Restore() returns false for anything else.
  Json Save() const;
  bool Restore(const Json& saved);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  int64_t newest_ = 0;
  bool closed_ = false;
};

}  // namespace weir
