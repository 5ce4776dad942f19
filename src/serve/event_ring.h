// SPDX-License-Identifier: Apache-2.0
// Events of one session for readers that come and go: the newest few are kept, so that a reader whose connection broke
// goes on where it was.
//
// They lie in a block of fixed size. Where a new one has no room, the oldest go.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "io/json.h"

namespace weir {

// All methods: any thread.
class EventRing {
 public:
  static constexpr size_t kMost = 256;
  static constexpr int64_t kMostBytes = 256 << 10;  // of their names and JSON together

  struct Event {
    int64_t id = 0;
    std::string name, json;
    int64_t n_missed = 0;  // events between the one that was asked from and this one that are no longer kept
  };

  // Bytes that Make() reserves. Readers may hold a ring for longer than its session is there: `ledger` outlives both.
  static int64_t Bytes();
  static Result<std::shared_ptr<EventRing>> Make(Ledger& ledger);
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  // REQUIRES: ids are 1, 2, ... in order. Never waits for a reader. One that is larger than the ring is not kept.
  void Push(int64_t id, std::string_view name, std::string_view json);
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
  struct Place {
    int64_t id = 0;
    uint32_t at = 0, n_name = 0, n_json = 0;
    uint32_t end() const { return at + n_name + n_json; }
  };
  explicit EventRing(HostBuffer block) : block_(std::move(block)) {}
  Place& PlaceOf(size_t k) const { return block_.as<Place>()[(first_ + k) % kMost]; }  // the k-th oldest
  char* bytes() const { return reinterpret_cast<char*>(block_.data()) + kMost * sizeof(Place); }
  // Where so many bytes may lie, without touching an event; nullopt: nowhere.
  std::optional<uint32_t> RoomFor(uint32_t n) const;
  void Put(int64_t id, std::string_view name, std::string_view json);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HostBuffer block_;               // kMost places, and the bytes that they name
  size_t first_ = 0, n_kept_ = 0;  // of the places, in a circle
  int64_t newest_ = 0;
  bool closed_ = false;
};

}  // namespace weir
