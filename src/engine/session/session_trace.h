// SPDX-License-Identifier: Apache-2.0
// A session's side of a trace (kv/trace.h): lines of what is forgotten and, where the trace asks, of where the newest
// rows attend.
#pragma once

#include "engine/buffer_space.h"
#include "engine/session/core.h"
#include "kv/attend.h"
#include "kv/trace.h"

namespace weir {

class SessionTrace {
 public:
  // The floats that attention is watched in: of all slots, layer after layer.
  void LayOut(const PotShape& pot, BufferSpace* space);
  // Lines go to `writer` from now on; nullptr: nowhere. Its first failure is returned once, and the writer dropped.
  void SetWriter(TraceWriter* writer) { writer_ = writer; }

  // What a chunk's forward pass is to fill for the trace, nullptr where nobody looks. asks: its last row ends a prompt
  // or is part of an answer.
  const AttentionWatch* WatchFor(const BatchItem& item, bool asks) const;
  // It was filled.
  Status Attended(const SessionCore& core);
  // Every group's keep-set of a selection, before the pot is compacted.
  Status Selected(const SessionCore& core, std::span<const SlotView> views, std::span<const KeepSet> keeps,
                  const char* reason);

 private:
  // Drops a writer that failed; the session continues without it.
  Status DropOnFailure(Status written);

  TraceWriter* writer_ = nullptr;
  AttentionWatch watch_;
};

}  // namespace weir
