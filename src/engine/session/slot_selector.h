// SPDX-License-Identifier: Apache-2.0
// Selection: decides which slots of a session's pot to keep. Shows the policy every group, checks its keep-sets,
// compacts the pot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/buffer_space.h"
#include "engine/evidence/evidence.h"
#include "engine/session/core.h"
#include "engine/session/rewind_mark.h"
#include "engine/session/session_trace.h"
#include "engine/session/slot_merger.h"

namespace weir {

class SlotSelector {
 public:
  // All four must outlive the selector.
  SlotSelector(SessionCore* core, EvidenceSet* evidence, SessionTrace* trace, RewindMark* rewind)
      : core_(*core), evidence_(*evidence), trace_(*trace), rewind_(*rewind) {}

  // Bytes of the lists that selections use, including the policy's.
  static void LayOut(const PotShape& pot, const PolicyNeeds& needs, BufferSpace* space);
  // Allocates the lists. The pot must exist.
  void Prepare();
  // What a selection drops is merged by it. It must outlive the selector.
  void Use(SlotMerger* merger) { merger_ = merger; }

  // Frees n_coming slots in every group. kOverBudget if nothing, or not enough, may be forgotten.
  Status MakeRoom(int32_t n_coming);
  // Call after a whole prompt was read. Evicts what the policy drops at that point.
  Status EndPrompt();
  // Lets the policy choose which of the newest rows of a prompt go on behind PolicyNeeds::filter_layers, and drops the
  // others from the layers there. rows: 0 to n - 1, of those that wait; receives those that go on, whatever the status.
  Status DropRows(std::vector<int32_t>* rows);
  // Removes an excerpt from every group, pinned as it is.
  Status TakeBack(SeqRange excerpt);
  // For steps that read a part of the pot (PolicyNeeds::read_every): asks the policy which slots of each group the next
  // row reads. Its own slot is not among them.
  void SelectRead(std::span<KeepSet> reads);

 private:
  // Fills views_ with the policy's view of every group.
  void FillViews();
  // One selection: keeps n_keep slots (on average over the groups).
  Status Shrink(int32_t n_keep, const char* reason);
  // PolicyNeeds::merge, before what is dropped leaves its slots.
  Status MergeDropped();
  // Checks that the policy kept no more slots than allowed.
  Status CheckCounts(int32_t n_keep) const;
  // One selection at the end of a prompt; the policy decides how many slots to keep.
  Status TrimPrompt();
  // Keeps keeps_ of every group: trace, storage, counters. At most `most` slots of a group have no score then.
  Status KeepOnly(int32_t most, const char* reason);

  SessionCore& core_;
  EvidenceSet& evidence_;
  SessionTrace& trace_;
  RewindMark& rewind_;
  SlotMerger* merger_ = nullptr;
  std::vector<SlotView> views_;  // [n_groups]
  std::vector<KeepSet> keeps_;   // [n_groups]
};

}  // namespace weir
