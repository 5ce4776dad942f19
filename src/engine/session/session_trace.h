// SPDX-License-Identifier: Apache-2.0
// A session's side of a trace (kv/trace.h): writes what is forgotten and, if requested, where the newest rows attend.
#pragma once

#include "engine/buffer_space.h"
#include "engine/session/core.h"
#include "kv/attend.h"
#include "kv/trace.h"

namespace weir {

class SessionTrace {
 public:
  // The floats that record attention: of all slots, layer by layer.
  void LayOut(const PotShape& pot, BufferSpace* space);
  // Writes to `writer` from now on; nullptr: no trace. Its first failure is returned once, and the writer is dropped.
  void SetWriter(TraceWriter* writer) { writer_ = writer; }

  // The attention buffers that a chunk's forward pass must fill for the trace; nullptr if not needed. asks: its last
  // row ends a prompt or is part of an answer.
  const AttentionWatch* WatchFor(const BatchItem& item, bool asks) const;
  // Call after the pass filled it.
  Status Attended(const SessionCore& core);
  // Writes every group's keep-set of a selection. Call before the pot is compacted.
  Status Selected(const SessionCore& core, std::span<const SlotView> views, std::span<const KeepSet> keeps,
                  const char* reason);

 private:
  // Drops a writer that failed; the session continues without it.
  Status DropOnFailure(Status written);

  TraceWriter* writer_ = nullptr;
  AttentionWatch watch_;
};

}  // namespace weir
