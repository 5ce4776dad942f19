// SPDX-License-Identifier: Apache-2.0
#include "serve/decode_lanes.h"

#include <algorithm>
#include <iterator>

namespace weir {
namespace {

int64_t PreparedBytes(const ImageTransform& transform) { return PageRound(InputFloats(transform) * 4); }

int64_t LaneBytes(const ImageTransform& transform, int32_t max_side) {
  return PageRound(int64_t{3} * max_side * max_side) + PreprocessBytes(max_side, max_side, transform) +
         PreparedBytes(transform);
}

}  // namespace

DecodeLanes::Lane::~Lane() {
  if (lanes_ == nullptr) return;
  // Notify under the lock: the waiter may be the destructor, after which the object is gone.
  const std::lock_guard<std::mutex> lock(lanes_->mutex_);
  lanes_->places_[index_].taken = false;
  lanes_->freed_.notify_all();
}

DecodeLanes::~DecodeLanes() {
  std::unique_lock<std::mutex> lock(mutex_);
  freed_.wait(lock, [this] {
    return std::none_of(places_.begin(), places_.end(), [](const Place& place) { return place.taken; });
  });
}

int64_t DecodeLanes::Bytes(const ImageTransform& transform, const DecodeOptions& options) {
  return options.lanes * LaneBytes(transform, options.max_side);
}

Result<std::unique_ptr<DecodeLanes>> DecodeLanes::Make(const ImageTransform& transform, const DecodeOptions& options,
                                                       Ledger& ledger) {
  std::unique_ptr<DecodeLanes> out(new DecodeLanes(options));
  WEIR_ASSIGN_OR_RETURN(out->reservation_, ledger.Reserve(MemTag::kVision, Bytes(transform, options)));
  out->places_.resize(static_cast<size_t>(options.lanes));
  for (Place& place : out->places_) {
    place.ledger = std::make_unique<Ledger>(LaneBytes(transform, options.max_side));
    WEIR_ASSIGN_OR_RETURN(place.prepared,
                          HostBuffer::Allocate(*place.ledger, MemTag::kVision, PreparedBytes(transform)));
  }
  return out;
}

DecodeLanes::Ticket::Ticket(DecodeLanes& lanes) : lanes_(lanes) {
  const std::lock_guard<std::mutex> lock(lanes_.mutex_);
  number_ = lanes_.next_ticket_++;
}

void DecodeLanes::Ticket::StepAside() {
  const std::lock_guard<std::mutex> lock(lanes_.mutex_);
  if (lanes_.line_.erase(number_) > 0) lanes_.freed_.notify_all();
}

std::optional<DecodeLanes::Lane> DecodeLanes::Take(const Ticket& ticket, std::chrono::milliseconds wait) {
  const auto is_free = [](const Place& place) { return !place.taken; };
  std::unique_lock<std::mutex> lock(mutex_);
  const auto turn = line_.insert(ticket.number_).first;
  const auto is_my_turn = [&] {
    return std::distance(line_.begin(), turn) < std::count_if(places_.begin(), places_.end(), is_free);
  };
  if (!freed_.wait_for(lock, wait, is_my_turn)) return std::nullopt;
  line_.erase(turn);
  const auto place = std::find_if(places_.begin(), places_.end(), is_free);
  place->taken = true;
  return Lane(this, static_cast<size_t>(place - places_.begin()));
}

MediaOptions DecodeLanes::media() const {
  MediaOptions out;
  out.max_side = options_.max_side;
  out.max_decoded_pixels = int64_t{options_.max_side} * options_.max_side;
  out.wall_ms = options_.timeout_ms;
  out.sandbox = options_.sandbox;
  return out;
}

}  // namespace weir
