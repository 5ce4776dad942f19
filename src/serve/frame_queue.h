// SPDX-License-Identifier: Apache-2.0
// A queue of frames of one session's live video that arrive while the engine is busy with other work.
//
// The sender of a frame does not wait for the model: the frame is prepared for the encoder and queued here. When the
// queue is full, the oldest waiting frame is dropped and counted, so that the delay is bounded by the queue's length.
// The same limit holds for frames that wait for a decoder: a newer one replaces the oldest.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "chat/picture_source.h"
#include "engine/frame_store.h"
#include "engine/session.h"
#include "serve/event_pictures.h"
#include "serve/shared_vision.h"

namespace weir {

struct FrameCounters {
  int64_t arrived = 0, read = 0, dropped = 0;  // totals
  int64_t waiting = 0;
  int64_t t_ms = -1;  // time of the last frame that arrived; -1: none
};

class FrameQueue {
 public:
  // Bytes that Make() reserves under kVision: `n_waiting` frames, one in use by the engine, one arriving.
  static int64_t Bytes(const EncoderConfig& config, int n_waiting);
  // kOverBudget. `vision` and `ledger` must outlive it. REQUIRES: n_waiting >= 1.
  static Result<std::shared_ptr<FrameQueue>> Make(SharedVision& vision, int n_waiting, Ledger& ledger);
  // Continues another queue's stream; the frames that waited there count as dropped. REQUIRES: nothing arrived yet.
  void GoOnFrom(const FrameCounters& before);

  int n_waiting() const { return static_cast<int>(slots_.size()) - 2; }

  // Any thread. Registers a frame that waits for a decoder and returns its number. If there are too many, the oldest is
  // dropped, and Leave() tells its owner.
  int64_t Enter();
  bool Waits(int64_t number) const;
  // The frame waits no longer. False if it was dropped.
  bool Leave(int64_t number);
  // Any thread; frames are processed one at a time. kInvalidArgument if t_ms is before the last frame's; errors of
  // Preprocess(); and, once, the error that ended the reading of an earlier frame. *start: no job reads the queue, so
  // the caller must post one.
  Status Push(const RgbView& frame, int64_t t_ms, Ledger& work, bool* start);

  // [engine] Reads the oldest waiting frame into the session, or keeps it with the session's frames; nullopt: none
  // waits. `pictures` see it, too; nullptr: there are none.
  Result<std::optional<int64_t>> Read(FrameStore& kept, Session& session, const Session::AppendOptions& append,
                                      EventPictures* pictures);
  // [engine] Call when the reading job ends. True: more frames wait, and another job must be posted. The next Push()
  // returns an error given here.
  bool Pause(const Status& status);

  FrameCounters counters() const;
  int64_t bytes() const { return reservation_.bytes(); }

 private:
  struct Slot {
    int64_t t_ms = 0;
    PictureSize source;  // of the frame that was prepared
    HostBuffer pixels;
  };
  explicit FrameQueue(SharedVision& vision, int64_t bytes) : vision_(vision), ledger_(bytes) {}

  SharedVision& vision_;
  Reservation reservation_;
  Ledger ledger_;
  std::vector<Slot> slots_;
  std::mutex arriving_;  // one frame at a time is prepared
  mutable std::mutex mutex_;
  std::deque<size_t> free_, waiting_;  // of slots_; under mutex_, as is the rest
  std::deque<int64_t> undecoded_;      // numbers of frames that wait for a decoder
  int64_t next_number_ = 0;
  FrameCounters counters_;
  bool read_ = false;  // a job reads the queue or is posted
  Status status_;
};

}  // namespace weir
