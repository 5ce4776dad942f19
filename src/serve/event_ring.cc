// SPDX-License-Identifier: Apache-2.0
#include "serve/event_ring.h"

#include <algorithm>
#include <utility>

namespace weir {

void EventRing::Push(int64_t id, std::string name, std::string json) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back({id, std::move(name), std::move(json), 0});
    if (events_.size() > kMost) events_.pop_front();
    newest_ = id;
  }
  changed_.notify_all();
}

std::optional<EventRing::Event> EventRing::After(int64_t id, std::chrono::milliseconds wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (id < 0 || id > newest_) id = 0;
  changed_.wait_for(lock, wait, [&] { return newest_ > id || closed_; });
  const auto next = std::ranges::find_if(events_, [id](const Event& event) { return event.id > id; });
  if (next == events_.end()) return std::nullopt;
  Event out = *next;
  out.n_missed = out.id - id - 1;
  return out;
}

int64_t EventRing::newest() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return newest_;
}

void EventRing::Close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool EventRing::closed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return closed_;
}

Json EventRing::Save() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Json out = Json::array();
  for (const Event& event : events_) out.push_back({event.id, event.name, event.json});
  return out;
}

bool EventRing::Restore(const Json& saved) {
  if (!saved.is_array() || saved.size() > kMost) return false;
  std::deque<Event> events;
  for (const Json& item : saved) {
    if (!item.is_array() || item.size() != 3 || !item[0].is_number_integer() || !item[1].is_string() ||
        !item[2].is_string()) {
      return false;
    }
    const auto id = item[0].get<int64_t>();
    if (id <= (events.empty() ? 0 : events.back().id)) return false;
    // A line end would begin another field of the stream.
    const auto name = item[1].get<std::string>(), json = item[2].get<std::string>();
    if ((name + json).find_first_of("\r\n") != std::string::npos) return false;
    events.push_back({id, name, json, 0});
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  events_ = std::move(events);
  newest_ = events_.empty() ? 0 : events_.back().id;
  return true;
}

}  // namespace weir
