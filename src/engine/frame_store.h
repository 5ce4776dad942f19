// SPDX-License-Identifier: Apache-2.0
// The frames of one stream that wait to be read together.
//
// Some encoders compute rows from all frames together (vision/frame_memory.h): a frame is then stored without adding
// tokens, and Recall() reads the resulting rows before a question. Others read two frames as one
// (engine/frame_pairs.h): every other frame waits for the next one. The rest keep no frames: their store passes every
// frame to the session at once.
//
// Kept frames belong to the stream like its pot: they are in its plan, its ledger, its snapshots and its copies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/frame_pairs.h"
#include "engine/picture_encoder.h"
#include "engine/session.h"
#include "vision/frame_memory.h"

namespace weir {

class FrameStore {
 public:
  // What SessionOptions::beside must contain; empty for an encoder that makes rows of every frame by itself.
  static std::vector<PlanItem> Plan(const Encoder& encoder);
  // Memory is reserved in `ledger` under kVision. Both arguments must outlive the object. kOverBudget.
  static Result<std::unique_ptr<FrameStore>> Make(Encoder& encoder, Ledger& ledger);

  // Whether a frame may be kept for later.
  bool keeps() const { return memory_ != nullptr || pairs_ != nullptr; }
  // Whether frames are kept until Recall(), however many come.
  bool remembers() const { return memory_ != nullptr; }

  // Adds a frame, given as a picture or as the output of PictureEncoder::Prepare(); if frames are not kept, or it
  // completes a pair, reads it into the session at once. A full store is recalled first. append.t_src_ms is the frame's
  // time. `pictures` must be of the same encoder. Errors of PictureEncoder::Read(); a frame that fails changes nothing.
  Status Read(PictureEncoder& pictures, const RgbView& frame, Session& session, const Session::AppendOptions& append);
  Status ReadPrepared(PictureEncoder& pictures, const float* frame, Session& session,
                      const Session::AppendOptions& append);

  // Whether Recall() would read anything.
  bool fresh() const { return memory_ != nullptr ? memory_->n_rows() > 0 : pairs_ != nullptr && pairs_->fresh(); }
  // The newest frame's time: that of the rows that Recall() reads.
  int64_t newest_ms() const { return newest_ms_; }
  // Reads the rows of the kept frames, if a frame was added since the last call, and ends a video whose pairs stand
  // together. Call it before a question. Errors of Session::AppendEmbeddings().
  Status Recall(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append);
  // Call it before anything but frames is read between frames: does what Recall() does, unless frames are remembered.
  Status Interrupt(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append) {
    return remembers() ? Status() : Recall(pictures, session, append);
  }
  // Call it when the next frame will not come soon: reads a frame that waits for its partner without one.
  Status Settle(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append);
  // Forgets the kept frames; rows already read from them stay in the session.
  void Forget();
  // After Forget(): the stream's time at which a video begins whose frames are told by its own clock.
  void BeginAt(int64_t t_ms);

  // Saves and restores the kept frames; 0 bytes if there is nothing to save. kInvalidArgument for bytes that Save() did
  // not write for this encoder, or for surplus bytes; errors of sink and source. The store is empty after an error of
  // Restore(). Check() reads the same bytes, gives the same errors, and changes nothing.
  int64_t state_bytes() const;
  Status Save(ByteSink& sink) const;
  Status Check(ByteSource& source);
  Status Restore(ByteSource& source);
  // Becomes a copy. REQUIRES: `other` is of the same encoder.
  void CopyFrom(const FrameStore& other);

 private:
  FrameStore() = default;
  // Makes room for a frame in the memory.
  Status MakeRoom(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append);
  // A frame was taken.
  Status Took(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append);

  HostBuffer bytes_;
  // In bytes_, at most one of them.
  std::unique_ptr<FrameMemory> memory_;
  std::unique_ptr<FramePairs> pairs_;
  int64_t newest_ms_ = 0;  // of the frames that came
};

}  // namespace weir
