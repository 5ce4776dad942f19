// SPDX-License-Identifier: Apache-2.0
#include "engine/session/session_trace.h"

namespace weir {

void SessionTrace::LayOut(const PotShape& pot, BufferSpace* space) {
  watch_.stride = pot.max_head_slots();
  watch_.out = space->Floats(MemTag::kWorkspace, pot.n_layers * watch_.stride);
}

const AttentionWatch* SessionTrace::WatchFor(const BatchItem& item, bool asks) const {
  const bool wanted = watch_.out != nullptr && writer_ != nullptr && writer_->WantsAttention();
  return wanted && item.reads == nullptr && asks ? &watch_ : nullptr;
}

Status SessionTrace::DropOnFailure(Status written) {
  if (!written.ok()) writer_ = nullptr;
  return written;
}

Status SessionTrace::Attended(const SessionCore& core) {
  core.backend->Synchronise();
  return DropOnFailure(writer_->Attended(*core.pot, core.stream.n_seen, watch_));
}

Status SessionTrace::Selected(const SessionCore& core, std::span<const SlotView> views, std::span<const KeepSet> keeps,
                              const char* reason) {
  for (size_t group = 0; group < views.size() && writer_ != nullptr; ++group) {
    const SlotView& view = views[group];
    WEIR_RETURN_IF_ERROR(DropOnFailure(writer_->Selected({.step = core.stream.n_selections,
                                                          .n_seen = core.stream.n_seen,
                                                          .policy = core.options.policy.info->name,
                                                          .layer = view.layer,
                                                          .head = view.head,
                                                          .slots = view.slots,
                                                          .scores = view.scores,
                                                          .nll = view.nll,
                                                          .keep = &keeps[group],
                                                          .reason = reason})));
  }
  return Status();
}

}  // namespace weir
