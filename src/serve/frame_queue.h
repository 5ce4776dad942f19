// SPDX-License-Identifier: Apache-2.0
// Frames of one session's live video that arrive while the engine is busy with something else.
//
// Whoever sends a frame does not wait for the model: the frame is made ready for the encoder and waits here. When the
// queue is full the oldest waiting frame is dropped and counted, so that what is looked at next is never older than the
// queue is long. Frames that wait for a decoder are as many at most, and the oldest of them gives up for a newer one.
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
#include "serve/shared_vision.h"

namespace weir {

struct FrameCounters {
  int64_t arrived = 0, read = 0, dropped = 0;  // of all that ever came
  int64_t waiting = 0;
  int64_t t_ms = -1;  // moment of the last one that arrived; -1: none did
};

class FrameQueue {
 public:
  // Bytes that Make() reserves under kVision: `n_waiting` frames, one in the engine's hands, one that is arriving.
  static int64_t Bytes(const EncoderConfig& config, int n_waiting);
  // kOverBudget. `vision` and `ledger` outlive it. REQUIRES: n_waiting >= 1.
  static Result<std::shared_ptr<FrameQueue>> Make(SharedVision& vision, int n_waiting, Ledger& ledger);
  // Goes on with another queue's stream; its frames that waited count as dropped. REQUIRES: nothing arrived yet.
  void GoOnFrom(const FrameCounters& before);

  int n_waiting() const { return static_cast<int>(slots_.size()) - 2; }

  // Any thread. A frame came and waits for a decoder: its number. The oldest of too many is dropped, and its owner
  // finds it gone.
  int64_t Enter();
  bool Waits(int64_t number) const;
  // It waits no longer. False when it was dropped.
  bool Leave(int64_t number);
  // Any thread; one frame after the other. kInvalidArgument when t_ms lies before the last frame's, errors of
  // Preprocess(), and whatever ended the reading of an earlier frame (once). *start: nobody reads the queue, so the
  // caller posts a job that does.
  Status Push(const RgbView& frame, int64_t t_ms, Ledger& work, bool* start);

  // [engine] The oldest waiting frame is read into the session, or kept with its frames; nullopt: none waits.
  Result<std::optional<int64_t>> Read(FrameStore& kept, Session& session, const Session::AppendOptions& append);
  // [engine] The job that reads ends. True: more frames wait, another job has to go on. With an error the next Push()
  // tells it.
  bool Pause(const Status& status);

  FrameCounters counters() const;
  int64_t bytes() const { return reservation_.bytes(); }

 private:
  struct Slot {
    int64_t t_ms = 0;
    HostBuffer pixels;
  };
  explicit FrameQueue(SharedVision& vision, int64_t bytes) : vision_(vision), ledger_(bytes) {}

  SharedVision& vision_;
  Reservation reservation_;
  Ledger ledger_;
  std::vector<Slot> slots_;
  std::mutex arriving_;  // one frame at a time is made ready
  mutable std::mutex mutex_;
  std::deque<size_t> free_, waiting_;  // of slots_; under mutex_, as is the rest
  std::deque<int64_t> undecoded_;      // numbers of frames that wait for a decoder
  int64_t next_number_ = 0;
  FrameCounters counters_;
  bool read_ = false;  // a job reads or will read
  Status status_;
};

}  // namespace weir
