// SPDX-License-Identifier: Apache-2.0
// Selection: which slots of a session's pot stay. Shows the policy every group, checks its keep-sets, compacts the pot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/buffer_space.h"
#include "engine/evidence/evidence.h"
#include "engine/session/core.h"
#include "engine/session/rewind_mark.h"
#include "engine/session/session_trace.h"

namespace weir {

class Selector {
 public:
  // All four outlive the selector.
  Selector(SessionCore* core, EvidenceSet* evidence, SessionTrace* trace, RewindMark* rewind)
      : core_(*core), evidence_(*evidence), trace_(*trace), rewind_(*rewind) {}

  // Bytes of the lists that selections work with, the policy's included.
  static void LayOut(const PotShape& pot, const PolicyNeeds& needs, BufferSpace* space);
  // Takes them. The pot is there.
  void Prepare();

  // Makes n_coming slots free in every group. kOverBudget where nothing may be forgotten, or not enough.
  Status MakeRoom(int32_t n_coming);
  // A prompt was read whole. Forgets what the policy drops at that moment.
  Status EndPrompt();
  // For steps that read a part of the pot (PolicyNeeds::read_every): asks the policy which slots of each group the next
  // row reads. Its own slot is not among them.
  void SelectRead(std::span<KeepSet> reads);

 private:
  // What the policy sees of every group, in views_.
  void FillViews();
  // One selection: n_keep slots stay (on average over the groups).
  Status Shrink(int32_t n_keep, const char* reason);
  // Whether the policy kept no more than it may.
  Status CheckCounts(int32_t n_keep) const;
  // One selection at the end of a prompt, by the policy's own measure of how much stays.
  Status TrimPrompt();
  // Keeps keeps_ of every group: trace, storage, counters. At most `most` slots of a group have no score then.
  Status KeepOnly(int32_t most, const char* reason);

  SessionCore& core_;
  EvidenceSet& evidence_;
  SessionTrace& trace_;
  RewindMark& rewind_;
  std::vector<SlotView> views_;  // [n_groups]
  std::vector<KeepSet> keeps_;   // [n_groups]
};

}  // namespace weir
