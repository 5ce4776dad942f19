// SPDX-License-Identifier: Apache-2.0
// The frames of one stream that wait to be read together.
//
// Some encoders compute rows from all frames together (vision/frame_memory.h): a frame is then stored without adding
// tokens, and Recall() reads the resulting rows before a question. Other encoders keep no frames: their store passes
// every frame to the session at once.
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
#include "engine/picture_encoder.h"
#include "engine/session.h"
#include "vision/frame_memory.h"

namespace weir {

class FrameStore {
 public:
  // What SessionOptions::beside must contain; empty for an encoder that makes rows of every frame.
  static std::vector<PlanItem> Plan(const Encoder& encoder);
  // Memory is reserved in `ledger` under kVision. Both arguments must outlive the object. kOverBudget.
  static Result<std::unique_ptr<FrameStore>> Make(Encoder& encoder, Ledger& ledger);

  // Whether frames are kept.
  bool keeps() const { return memory_ != nullptr; }

  // Adds a frame, given as a picture or as the output of PictureEncoder::Prepare(); if frames are not kept, reads it
  // into the session at once. A full store is recalled first. append.t_src_ms is the frame's time. `pictures` must be
  // of the same encoder. Errors of PictureEncoder::Read(); a frame that fails changes nothing.
  Status Read(PictureEncoder& pictures, const RgbView& frame, Session& session, const Session::AppendOptions& append);
  Status ReadPrepared(PictureEncoder& pictures, const float* frame, Session& session,
                      const Session::AppendOptions& append);

  // Whether Recall() would read anything.
  bool fresh() const { return memory_ != nullptr && memory_->n_rows() > 0; }
  // The newest frame's time: that of the rows that Recall() reads.
  int64_t newest_ms() const { return newest_ms_; }
  // Reads the rows of the kept frames, if a frame was added since the last call. Errors of Session::AppendEmbeddings().
  Status Recall(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append);
  // Forgets the kept frames; rows already read from them stay in the session.
  void Forget();

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

  HostBuffer bytes_;
  std::unique_ptr<FrameMemory> memory_;  // in bytes_; nullptr: frames are not kept
  int64_t newest_ms_ = 0;                // of the frames in memory_
};

}  // namespace weir
