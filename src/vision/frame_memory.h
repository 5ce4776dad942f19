// SPDX-License-Identifier: Apache-2.0
// What some encoders keep of a video's frames, and make rows of together, where others make rows of every frame.
//
// One object belongs to one stream. It lives in memory whose size does not depend on how many frames there are
// (Encoder::FrameMemoryBytes()). Its state can be saved, restored and copied: how many frames it has taken, and the
// numbers that they left behind.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace weir {

struct EncodeArgs;

class FrameMemory {
 public:
  virtual ~FrameMemory() = default;
  // Takes a frame in; args.out is not used. REQUIRES: !full().
  virtual void Take(const EncodeArgs& args) = 0;
  // No frame can be taken before Recall().
  virtual bool full() const = 0;
  // How many rows Recall() would give; 0 when no frame came since the last one.
  virtual int32_t n_rows() const = 0;
  // What the frames so far become, [n_rows(), n_embd] in args.out; args.pixels is not used.
  virtual void Recall(const EncodeArgs& args) = 0;
  // Forgets all frames.
  void Clear() { (void)Become({}); }
  // Nothing is kept: what comes next does not depend on earlier frames.
  bool empty() const { return progress().n_taken == 0; }

  // Bytes that Save() writes now.
  int64_t state_bytes() const;
  // Writes what decides all rows to come. Errors of the sink.
  Status Save(ByteSink& sink) const;
  // Reads as many bytes as Save() wrote. kInvalidArgument for bytes that no memory of this encoder wrote; errors of the
  // source. The memory is empty after an error.
  Status Restore(ByteSource& source);
  // Becomes a copy. REQUIRES: `other` is of the same encoder.
  void CopyFrom(const FrameMemory& other);

 protected:
  // What a memory counts. Everything else about its layout follows from these.
  struct Progress {
    int64_t n_taken = 0;  // frames that what is kept depends on
    bool fresh = false;   // one of them came since the last Recall()
  };
  // A part of the kept numbers. Weights count frames: from 0 to n_taken.
  struct Numbers {
    std::span<float> values;
    std::span<double> weights;
  };
  virtual Progress progress() const = 0;
  // Takes over the counts. False when this encoder's memory never has them; nothing changes then.
  virtual bool Become(const Progress& progress) = 0;
  // All numbers that are in use after so many frames, in an order that depends on progress() alone.
  virtual std::vector<Numbers> InUse() const = 0;
};

}  // namespace weir
