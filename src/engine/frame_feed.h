// SPDX-License-Identifier: Apache-2.0
// Frames that arrive while a session is busy: a thread reads the video and prepares frames for the encoder; a bounded
// queue holds them until the session takes them.
//
// A camera or a stream that has shown something and then ends, fails or says nothing for too long is opened again, with
// growing waits, until it is there or the feed ends. Its frames keep the clock: the time it was away passes.
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
#include <utility>
#include <vector>

#include "base/clock.h"
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
    // From one attempt to open a live source again to the next, doubled each time; 0: it is not opened again.
    int64_t reopen_ms = 500, reopen_most_ms = 30'000;
  };
  struct Counters {
    int64_t arrived = 0;  // read from the source so far
    int64_t still = 0;    // of these, left out because nothing had changed
    int64_t dropped = 0;  // of these, dropped because the queue was full, or without a change since one of those
    int64_t waiting = 0;  // of these, in the queue now
    int64_t gaps = 0;     // times that the source was away and came back
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
    int64_t gap_ms = 0;  // for which the source was away before this frame
    PictureSize source;  // of the frame that was prepared
  };
  // Takes the oldest waiting frame; false if none arrived within `wait_ms` or the source has ended.
  bool Take(Prepared* frame, int64_t wait_ms);

  // Why the source is away, once each time; ok: it is not, or this was said.
  Status TakeTrouble();
  // The source has ended and nothing waits.
  bool ended() const;
  // Why it ended; ok at the end of a file.
  Status status() const;
  Counters counters() const;

 private:
  struct Slot {
    int64_t t_src_ms = 0;
    PictureSize source;
    HostBuffer pixels;
  };

  // What waits to be taken: a slot, or frames that were left out.
  struct Waiting {
    int slot = -1;
    int64_t n_still = 0, t_src_ms = 0, gap_ms = 0;
  };

  FrameFeed(PictureReader& reader, std::string source, Options options)
      : pictures_(reader), source_(std::move(source)), options_(std::move(options)) {}
  Status Open();
  void Read();
  // Reads until the source ends.
  Status ReadOnce();
  // Opens a source that is away. False if the feed is being stopped.
  bool OpenAgain(Status why);
  // A frame was left out.
  void PassOver(int64_t t_src_ms);
  // A free buffer, or -1 if the feed is being stopped.
  int Claim();

  PictureReader& pictures_;
  const std::string source_;
  Options options_;
  std::unique_ptr<FrameReader> reader_;
  // Used by the thread.
  std::optional<FrameChange> change_;
  Clock::time_point first_at_;            // when the first frame came
  int64_t wait_ms_ = 0;                   // before the source is opened again
  int64_t offset_ms_ = 0, last_ms_ = -1;  // of the source's clock that was opened last; of the last frame
  std::vector<Slot> slots_;
  std::atomic<bool> stop_{false};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> free_;  // of slots_
  std::deque<Waiting> ready_;
  int taken_ = -1;
  int64_t gap_ms_ = 0;  // before the next frame
  Status trouble_;
  Counters counters_;
  bool done_ = false;
  Status status_;
  std::thread thread_;
};

}  // namespace weir
