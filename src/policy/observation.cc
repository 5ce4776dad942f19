// SPDX-License-Identifier: Apache-2.0
#include "policy/observation.h"

#include <algorithm>

namespace weir {

Result<Observation> Observation::From(const PolicyOptions& options) {
  Observation out;
  out.window = options.Int("window");
  out.kernel = options.Int("kernel");
  if (out.kernel % 2 == 0) return InvalidArgument("policy option kernel must be odd, not {}", out.kernel);
  out.pooling = PoolingOf(options.Text("pooling"));
  const std::string& reduce = options.Text("reduce");
  out.reduce = reduce == "max" ? HeadReduce::kMax : reduce == "sum" ? HeadReduce::kSum : HeadReduce::kMean;
  out.capacity = options.Int("capacity");
  out.absolute = options.Text("positions") == "abs";
  return out;
}

PolicyNeeds Observation::Needs() const {
  PolicyNeeds needs;
  needs.positions = absolute ? Positions::kAbs : Positions::kCache;
  needs.granularity = Granularity::kPerHead;
  needs.evidence.rows = EvidenceRows::kLast;
  needs.evidence.n_last = window;
  needs.evidence.head_reduce = reduce;
  needs.min_slots = 2;
  return needs;
}

int32_t Observation::TargetAfterPrompt(int32_t n_slots) const {
  return capacity == 0 ? -1 : std::min(capacity, n_slots);
}

int32_t Observation::WindowOf(const SlotView& view, int32_t n_keep, int32_t room) const {
  return ProtectedRecent(n_keep > window ? window : n_keep / 2, view.n_unscored, room);
}

void PoolCandidates(const Observation& observation, const SlotView& view, std::span<float> pooled) {
  Pool(view.scores.first(pooled.size()), observation.kernel, observation.pooling, pooled.data());
}

}  // namespace weir
