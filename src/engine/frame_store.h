// SPDX-License-Identifier: Apache-2.0
// The frames of one stream that wait to be read together.
//
// Some encoders make rows of all frames together (vision/frame_memory.h): a frame is then taken in without a token, and
// Recall() reads what the frames have become, before a question. Other encoders keep nothing: their store passes every
// frame on to the session at once.
//
// What is kept belongs to the stream as its pot does: in its plan and its ledger, in its snapshots, in its copies.
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
  // What SessionOptions::beside must hold; nothing for an encoder that makes rows of every frame.
  static std::vector<PlanItem> Plan(const Encoder& encoder);
  // Memory is reserved in `ledger` under kVision. Both arguments outlive the object. kOverBudget.
  static Result<std::unique_ptr<FrameStore>> Make(Encoder& encoder, Ledger& ledger);

  // Frames are kept together.
  bool keeps() const { return memory_ != nullptr; }

  // Takes a frame in, as a picture or as PictureEncoder::Prepare() made it; read at once where frames are not kept. A
  // store that is full is recalled first. append.t_src_ms is the frame's time. `pictures` is of the same encoder.
  // Errors of PictureEncoder::Read(); a frame that is not taken in changes nothing.
  Status Read(PictureEncoder& pictures, const RgbView& frame, Session& session, const Session::AppendOptions& append);
  Status ReadPrepared(PictureEncoder& pictures, const float* frame, Session& session,
                      const Session::AppendOptions& append);

  // Whether Recall() would read anything.
  bool fresh() const { return memory_ != nullptr && memory_->n_rows() > 0; }
  // The newest frame's time: that of the rows that Recall() reads.
  int64_t newest_ms() const { return newest_ms_; }
  // Reads what the frames have become, if one came since the last time. Errors of Session::AppendEmbeddings().
  Status Recall(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append);
  // Forgets the frames that are kept; what was read of them stays read.
  void Forget();

  // What is kept as bytes, and back; 0 bytes where there is nothing to save. kInvalidArgument for bytes that Save() did
  // not write for this encoder, or for more of them; errors of sink and source. The store is empty after an error.
  int64_t state_bytes() const;
  Status Save(ByteSink& sink) const;
  Status Restore(ByteSource& source);
  // Becomes a copy. REQUIRES: `other` is of the same encoder.
  void CopyFrom(const FrameStore& other);

 private:
  FrameStore() = default;
  // Before a frame is taken into the memory: makes room in it.
  Status MakeRoom(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append);

  HostBuffer bytes_;
  std::unique_ptr<FrameMemory> memory_;  // in bytes_; nullptr: frames are read one by one
  int64_t newest_ms_ = 0;                // of those in memory_
};

}  // namespace weir
