// SPDX-License-Identifier: Apache-2.0
// Reads one chunk of a stream: makes room for it, prepares its part of a forward pass, records the result. The caller
// runs the pass, which may hold chunks of several sessions (engine/step_batch.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "engine/buffer_space.h"
#include "engine/evidence/evidence.h"
#include "engine/runner.h"
#include "engine/session/core.h"
#include "engine/session/partial_reads.h"
#include "engine/session/prediction.h"
#include "engine/session/rewind_mark.h"
#include "engine/session/slot_selector.h"

namespace weir {

class ChunkReader {
 public:
  // All must outlive the reader.
  struct Parts {
    SessionCore& core;
    EvidenceSet& evidence;
    Prediction& prediction;
    RewindMark& rewind;
    SlotSelector& selector;
    PartialReads& reads;
  };
  explicit ChunkReader(const Parts& parts) : parts_(parts) {}

  // Bytes of the rows' metadata.
  static void LayOut(int64_t max_rows, BufferSpace* space) {
    space->Reserve(MemTag::kMeta, max_rows * static_cast<int64_t>(sizeof(SlotMeta)));
  }

  // kInvalidArgument names a token outside the vocabulary.
  Status CheckTokens(std::span<const int32_t> tokens) const;
  // Makes room for the next rows and returns how many of the n_left coming rows to read, at least one. Errors of
  // Session::Append().
  Result<int32_t> MakeRoom(int64_t n_left);
  // The chunk's part of a forward pass. REQUIRES: MakeRoom() made room for it. Refers to the session; valid until the
  // next call.
  BatchItem Begin(const Chunk& chunk);
  // Records the result of the pass: `hidden` of the chunk's rows, in memory of the backend. `nll`, unless it is
  // nullptr, receives -log P of each row, [chunk.n]; 0 for the first of the stream.
  void End(const Chunk& chunk, const BatchItem& item, const float* hidden, float* nll);

 private:
  // Tells the session's listener.
  void Announce(const Chunk& chunk);
  // Rows of the next chunk, limited by the room that pinned tokens leave; 0 if they leave none.
  int32_t NextRows(int64_t n_left) const;

  const Parts parts_;
};

}  // namespace weir
