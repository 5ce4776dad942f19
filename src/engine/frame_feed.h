// SPDX-License-Identifier: Apache-2.0
// Frames that arrive while a session is busy: a thread reads the video and prepares frames for the encoder; a bounded
// queue holds them until the session takes them.
//
// A live source does not wait: when the queue is full, the oldest waiting frame is dropped and counted, so that the
// delay is bounded by the queue's length. A file that is read as fast as possible waits instead (back-pressure).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/status.h"
#include "engine/picture_reader.h"
#include "media/frame_change.h"
#include "media/media.h"

namespace weir {

class FrameFeed {
 public:
  struct Options {
    FrameOptions frames;
    bool drop = true;  // false: the source waits when the queue is full
    // Leaves out frames that show the same as the last one that was not left out (media/frame_change.h).
    struct Still {
      double least = 3;
      int64_t max_gap_ms = 10'000;
    };
    std::optional<Still> still;
  };
  struct Counters {
    int64_t arrived = 0;  // read from the source so far
    int64_t still = 0;    // of these, left out because nothing had changed
    int64_t dropped = 0;  // of these, dropped because the queue was full, or without a change since one of those
    int64_t waiting = 0;  // of these, in the queue now
  };

  // Opens the source and starts the thread. The queue holds reader.room().n_waiting - 1 frames, and the caller holds
  // one more; their memory is reserved in the session's ledger. kInvalidArgument for n_waiting below 2; errors of
  // FrameReader::Open(). `reader` must outlive it.
  static Result<std::unique_ptr<FrameFeed>> Start(PictureReader& reader, const std::string& source,
                                                  const Options& options);
  // Ends the thread and the child process.
  ~FrameFeed();

  struct Prepared {
    int64_t t_src_ms = 0;
    // For PictureReader::ReadPrepared(); valid until the next call of Take(). nullptr: n_still frames were left out,
    // the last of them at t_src_ms.
    const float* pixels = nullptr;
    int64_t n_still = 0;
  };
  // Takes the oldest waiting frame; false if none arrived within `wait_ms` or the source has ended.
  bool Take(Prepared* frame, int64_t wait_ms);

  // The source has ended and nothing waits.
  bool ended() const;
  // Why it ended; ok at the end of a file.
  Status status() const;
  Counters counters() const;

 private:
  struct Slot {
    int64_t t_src_ms = 0;
    HostBuffer pixels;
  };

  // What waits to be taken: a slot, or frames that were left out.
  struct Waiting {
    int slot = -1;
    int64_t n_still = 0, t_src_ms = 0;
  };

  FrameFeed(PictureReader& reader, bool drop) : pictures_(reader), drop_(drop) {}
  void Read();
  // A frame was left out.
  void PassOver(int64_t t_src_ms);
  // A free buffer, or -1 if the feed is being stopped.
  int Claim();

  PictureReader& pictures_;
  const bool drop_;
  std::unique_ptr<FrameReader> reader_;
  std::optional<FrameChange> change_;  // used by the thread
  std::vector<Slot> slots_;
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> free_;  // of slots_
  std::deque<Waiting> ready_;
  int taken_ = -1;
  Counters counters_;
  bool done_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace weir
