// SPDX-License-Identifier: Apache-2.0
// Lanes in which a server decodes pictures and videos.
//
// Decoding (ffmpeg, and preparing a frame for the encoder) runs on request threads. Each needs a lane, which has memory
// for one picture, so that the memory for decoding is known before the first request.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "base/memory.h"
#include "media/media.h"
#include "vision/encoder.h"

namespace weir {

struct DecodeOptions {
  int32_t max_side = 1024;      // pictures are shrunk to this many pixels on their longer side
  int lanes = 2;                // pictures and videos decoded at once
  int64_t max_frames = 10'000;  // pictures and frames of one request, repeated ones included
  int64_t timeout_ms = 30'000;  // for a picture, or a video's next frame
  bool sandbox = true;          // of media/media.h
  int64_t decode_s = 600;       // for decoding all pictures and videos of one request
};

class DecodeLanes {
 public:
  // Bytes that Make() reserves under kVision, for pictures of an encoder with that transform.
  static int64_t Bytes(const ImageTransform& transform, const DecodeOptions& options);
  // kOverBudget. `ledger` outlives it.
  static Result<std::unique_ptr<DecodeLanes>> Make(const ImageTransform& transform, const DecodeOptions& options,
                                                   Ledger& ledger);
  // Waits until every lane has been returned.
  ~DecodeLanes();

  // A lane to decode one picture at a time. Move-only; returned by its destructor.
  class Lane {
   public:
    Lane(Lane&& other) noexcept : lanes_(std::exchange(other.lanes_, nullptr)), index_(other.index_) {}
    Lane& operator=(Lane&& other) noexcept {
      std::swap(lanes_, other.lanes_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Lane();
    // Has room for the pixels of a picture, a prepared frame, and the working memory of preparing it.
    Ledger& ledger() const { return *lanes_->places_[index_].ledger; }
    // InputFloats() of the encoder's transform, for a prepared frame.
    float* prepared() const { return lanes_->places_[index_].prepared.as<float>(); }

   private:
    friend class DecodeLanes;
    Lane(DecodeLanes* lanes, size_t index) : lanes_(lanes), index_(index) {}
    DecodeLanes* lanes_;
    size_t index_;
  };
  // A place in the queue for a lane, in order of creation. A ticket that is not waiting in Take() does not block
  // others. Any thread, one at a time. Must not outlive the lanes.
  class Ticket {
   public:
    explicit Ticket(DecodeLanes& lanes);
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket() { StepAside(); }
    // Lets others go first until the next Take() with this ticket.
    void StepAside();

   private:
    friend class DecodeLanes;
    DecodeLanes& lanes_;
    uint64_t number_;
  };
  // Any thread. nullopt if it is not this ticket's turn within the time given; the ticket keeps its place in the queue.
  // One lane per ticket.
  std::optional<Lane> Take(const Ticket& ticket, std::chrono::milliseconds wait);

  // Options for decoding files of requests: shrunk and limited.
  MediaOptions media() const;
  const DecodeOptions& options() const { return options_; }

 private:
  struct Place {
    std::unique_ptr<Ledger> ledger;
    HostBuffer prepared;
    bool taken = false;  // under mutex_
  };
  explicit DecodeLanes(const DecodeOptions& options) : options_(options) {}

  const DecodeOptions options_;
  Reservation reservation_;  // of everything below
  std::mutex mutex_;
  std::condition_variable freed_;  // a lane, or a place in the queue
  std::vector<Place> places_;
  uint64_t next_ticket_ = 0;  // under mutex_, as is the queue: numbers of the tickets that wait for a lane now
  std::set<uint64_t> line_;
};

}  // namespace weir
