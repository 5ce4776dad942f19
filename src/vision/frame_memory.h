// SPDX-License-Identifier: Apache-2.0
// The state that some encoders keep of a video's frames and turn into rows together; others make rows of every frame.
//
// One object belongs to one stream. Its memory does not depend on the number of frames (Encoder::FrameMemoryBytes()).
// Its state can be saved, restored and copied: the number of frames taken, and the numbers computed from them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace weir {

struct EncodeArgs;

// The error for bytes that hold no saved frames, or those of another encoder.
inline Status NotSavedFrames() { return InvalidArgument("these bytes are not the saved frames of this encoder"); }

class FrameMemory {
 public:
  virtual ~FrameMemory() = default;
  // Adds a frame; args.out is not used. REQUIRES: !full().
  virtual void Take(const EncodeArgs& args) = 0;
  // No frame can be added before Recall().
  virtual bool full() const = 0;
  // How many rows Recall() would return; 0 when no frame was added since the last one.
  virtual int32_t n_rows() const = 0;
  // The rows for the frames so far, [n_rows(), n_embd] in args.out; args.pixels is not used.
  virtual void Recall(const EncodeArgs& args) = 0;
  // Forgets all frames.
  void Clear() { (void)Become({}); }
  // Nothing is kept: later results do not depend on earlier frames.
  bool empty() const { return progress().n_taken == 0; }

  // Bytes that Save() would write now.
  int64_t state_bytes() const;
  // Writes the state that determines all later rows. Errors of the sink.
  Status Save(ByteSink& sink) const;
  // Reads what Restore() would read and gives its errors; the memory stays as it is.
  Status Check(ByteSource& source);
  // Reads as many bytes as Save() wrote. kInvalidArgument for bytes that were not written by a memory of this encoder;
  // errors of the source. The memory is empty after an error.
  Status Restore(ByteSource& source);
  // Becomes a copy of `other`. REQUIRES: `other` is of the same encoder.
  void CopyFrom(const FrameMemory& other);

 protected:
  // The counts of a memory. Everything else about its layout follows from them.
  struct Progress {
    int64_t n_taken = 0;  // frames that the kept state depends on
    bool fresh = false;   // whether one of them was added since the last Recall()
  };
  // A part of the kept numbers. Weights count frames: from 0 to n_taken.
  struct Numbers {
    std::span<float> values;
    std::span<double> weights;
  };
  virtual Progress progress() const = 0;
  // Sets the counts and leaves the numbers alone. False, and no change, for counts that this encoder's memory cannot
  // have.
  virtual bool Become(const Progress& progress) = 0;
  // All numbers in use after that many frames, in an order that depends only on progress().
  virtual std::vector<Numbers> InUse() const = 0;
};

}  // namespace weir
