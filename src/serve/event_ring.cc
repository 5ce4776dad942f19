// SPDX-License-Identifier: Apache-2.0
#include "serve/event_ring.h"

#include <cstring>
#include <utility>

namespace weir {

int64_t EventRing::Bytes() { return PageRound(static_cast<int64_t>(kMost * sizeof(Place)) + kMostBytes); }

Result<std::shared_ptr<EventRing>> EventRing::Make(Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(HostBuffer block, HostBuffer::Allocate(ledger, MemTag::kOther, Bytes()));
  return std::shared_ptr<EventRing>(new EventRing(std::move(block)));
}

std::optional<uint32_t> EventRing::RoomFor(uint32_t n) const {
  constexpr auto kEnd = static_cast<uint32_t>(kMostBytes);
  if (n_kept_ == kMost) return std::nullopt;
  if (n_kept_ == 0) return n <= kEnd ? std::optional<uint32_t>(0) : std::nullopt;
  const uint32_t oldest = PlaceOf(0).at, end = PlaceOf(n_kept_ - 1).end();
  if (end <= oldest) return n <= oldest - end ? std::optional(end) : std::nullopt;
  if (n <= kEnd - end) return end;
  return n <= oldest ? std::optional<uint32_t>(0) : std::nullopt;
}

void EventRing::Put(int64_t id, std::string_view name, std::string_view json) {
  newest_ = id;
  const size_t n = name.size() + json.size();
  if (n == 0 || n > static_cast<size_t>(kMostBytes)) return;
  std::optional<uint32_t> at;
  while (!(at = RoomFor(static_cast<uint32_t>(n)))) {
    first_ = (first_ + 1) % kMost;
    --n_kept_;
  }
  PlaceOf(n_kept_++) = {id, *at, static_cast<uint32_t>(name.size()), static_cast<uint32_t>(json.size())};
  std::memcpy(bytes() + *at, name.data(), name.size());
  std::memcpy(bytes() + *at + name.size(), json.data(), json.size());
}

void EventRing::Push(int64_t id, std::string_view name, std::string_view json) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Put(id, name, json);
  }
  changed_.notify_all();
}

std::optional<EventRing::Event> EventRing::After(int64_t id, std::chrono::milliseconds wait) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (id < 0 || id > newest_) id = 0;
  changed_.wait_for(lock, wait, [&] { return newest_ > id || closed_; });
  for (size_t k = 0; k < n_kept_; ++k) {
    const Place& place = PlaceOf(k);
    if (place.id <= id) continue;
    const char* const text = bytes() + place.at;
    return Event{place.id, std::string(text, place.n_name), std::string(text + place.n_name, place.n_json),
                 place.id - id - 1};
  }
  return std::nullopt;
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
  for (size_t k = 0; k < n_kept_; ++k) {
    const Place& place = PlaceOf(k);
    const char* const text = bytes() + place.at;
    out.push_back({place.id, std::string(text, place.n_name), std::string(text + place.n_name, place.n_json)});
  }
  return out;
}

bool EventRing::Restore(const Json& saved) {
  if (!saved.is_array() || saved.size() > kMost) return false;
  int64_t before = 0;
  for (const Json& item : saved) {
    if (!item.is_array() || item.size() != 3 || !item[0].is_number_integer() || !item[1].is_string() ||
        !item[2].is_string()) {
      return false;
    }
    const auto id = item[0].get<int64_t>();
    if (id <= std::exchange(before, id)) return false;
    // A line end would begin another field of the stream.
    for (const Json& text : {item[1], item[2]}) {
      if (text.get_ref<const std::string&>().find_first_of("\r\n") != std::string::npos) return false;
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  first_ = n_kept_ = 0;
  newest_ = 0;
  for (const Json& item : saved) {
    Put(item[0].get<int64_t>(), item[1].get_ref<const std::string&>(), item[2].get_ref<const std::string&>());
  }
  return true;
}

}  // namespace weir
