// SPDX-License-Identifier: Apache-2.0
// Lanes in which a server decodes pictures and videos.
//
// Decoding (ffmpeg, and making a frame ready for the encoder) is done by threads of requests. Each needs a lane, which
// has memory for one picture, so that what decoding takes is known before the first request.
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
  int32_t max_side = 1024;      // pictures are shrunk to so many pixels on their longer side
  int lanes = 2;                // pictures and videos that are decoded at once
  int64_t max_frames = 10'000;  // pictures and frames of one request, repeated ones included
  int64_t timeout_ms = 30'000;  // for a picture, or a video's next frame
  int64_t decode_s = 600;       // for decoding all pictures and videos of one request
};

class DecodeLanes {
 public:
  // Bytes that Make() reserves under kVision, for pictures of an encoder with that transform.
  static int64_t Bytes(const ImageTransform& transform, const DecodeOptions& options);
  // kOverBudget. `ledger` outlives it.
  static Result<std::unique_ptr<DecodeLanes>> Make(const ImageTransform& transform, const DecodeOptions& options,
                                                   Ledger& ledger);
  // Waits until every lane was given back.
  ~DecodeLanes();

  // A place to decode one picture at a time. Move-only; gives itself back.
  class Lane {
   public:
    Lane(Lane&& other) noexcept : lanes_(std::exchange(other.lanes_, nullptr)), index_(other.index_) {}
    Lane& operator=(Lane&& other) noexcept {
      std::swap(lanes_, other.lanes_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Lane();
    // Has room for the pixels of a picture, a frame made ready, and what that takes.
    Ledger& ledger() const { return *lanes_->places_[index_].ledger; }
    // InputFloats() of the encoder's transform, for a frame made ready.
    float* prepared() const { return lanes_->places_[index_].prepared.as<float>(); }

   private:
    friend class DecodeLanes;
    Lane(DecodeLanes* lanes, size_t index) : lanes_(lanes), index_(index) {}
    DecodeLanes* lanes_;
    size_t index_;
  };
  // A place in the queue for a lane, in the order in which tickets are made. A ticket that nobody presents, for now or
  // any more, holds up no other. Any thread, one at a time. Must not outlive the lanes.
  class Ticket {
   public:
    explicit Ticket(DecodeLanes& lanes);
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket() { StepAside(); }
    // Others may go first until a lane is asked for again.
    void StepAside();

   private:
    friend class DecodeLanes;
    DecodeLanes& lanes_;
    uint64_t number_;
  };
  // Any thread. Nullopt when it is not this ticket's turn (for that long); it then stays in the line. One lane a
  // ticket.
  std::optional<Lane> Take(const Ticket& ticket, std::chrono::milliseconds wait);

  // How files of requests are read: shrunk, and limited.
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
  std::condition_variable freed_;  // a lane, or a place in the line
  std::vector<Place> places_;
  uint64_t next_ticket_ = 0;  // under mutex_, as is the line: numbers of tickets that would take a lane now
  std::set<uint64_t> line_;
};

}  // namespace weir
