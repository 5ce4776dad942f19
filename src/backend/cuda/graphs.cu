// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/graphs.h"

#include <algorithm>
#include <iterator>

namespace weir::WEIR_GPU {

Graphs::~Graphs() {
  for (Kept& kept : kept_) driver_.Drop(&kept.graph);
}

Status Graphs::Reserve(Ledger& ledger) {
  std::vector<Kept> made(kKept);
  for (Kept& kept : made) {
    WEIR_ASSIGN_OR_RETURN(kept.list, WorkList::Make(ledger));
  }
  kept_ = std::move(made);
  return Status();
}

bool Graphs::Fail(Kept& kept) {
  driver_.Drop(&kept.graph);
  ++counts_.failed;
  return false;
}

bool Graphs::SendAgain(Kept& kept, const WorkList& list) {
  for (int64_t i = 0; i < list.size(); ++i) {
    if (kept.list.IsSame(i, list)) continue;
    kept.list.Assign(i, list);
    if (!driver_.Update(kept.graph, kept.list, i)) return Fail(kept);
    ++counts_.updated;
  }
  if (!driver_.Launch(kept.graph)) return Fail(kept);
  ++counts_.replayed;
  return true;
}

bool Graphs::Send(const WorkList& list) {
  if (!enabled() || list.size() == 0) return false;
  ++now_;
  for (Kept& kept : kept_) {
    if (kept.graph.exec == nullptr || !kept.list.HasShapeOf(list)) continue;
    kept.last_used = now_;
    return SendAgain(kept, list);
  }
  if (std::find(std::begin(seen_), std::end(seen_), list.shape()) == std::end(seen_)) {
    seen_[n_seen_++ % kRemembered] = list.shape();
    return false;
  }
  Kept& kept = *std::min_element(kept_.begin(), kept_.end(),
                                 [](const Kept& a, const Kept& b) { return a.last_used < b.last_used; });
  driver_.Drop(&kept.graph);
  kept.last_used = now_;
  kept.list.Assign(list);
  if (!driver_.Build(kept.list, &kept.graph) || !driver_.Launch(kept.graph)) return Fail(kept);
  ++counts_.built;
  return true;
}

}  // namespace weir::WEIR_GPU
