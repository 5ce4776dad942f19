// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// KeyDiff: the slots whose keys point away from the mean direction of all keys.
// Paper: "KeyDiff: Key Similarity-Based KV Cache Eviction for Long-Context LLM Inference in Resource-Constrained
// Environments" (arXiv 2504.15364), section 3.
//
//   score_j = -cos(k_j, m)      m = mean over all slots of the head of k / |k|
//
// One keep-set per layer and KV head, from the stored keys, without attention.
//
// Differences:
// - Keys before rotation: a score does not depend on a slot's position.
// - Statistics are computed at the selection, over everything the head holds; `step` slots are evicted at once.
// - `recent` newest slots can be protected; none by default, as in the paper.
#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "recent",
     .fallback = 0,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "newest slots, always kept",
     .tune = "0|16|64|128"},
    kStepOption,
};

class KeyDiff : public Policy {
 public:
  KeyDiff(int32_t recent, int32_t step) : recent_(recent), step_(step) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.vector = VectorScore::kKeyDiff;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    picker_.TakeNewest(ProtectedRecent(recent_, view.n_unscored, picker_.room()));
    picker_.TakeBest({view.scores, {}}, picker_.n_slots(), n_keep);
    picker_.Finish(keep);
  }

 private:
  const int32_t recent_, step_;
  SlotPicker picker_;
};

}  // namespace

extern const PolicyInfo kKeydiff;
const PolicyInfo kKeydiff = {
    .name = "keydiff",
    .summary = "keeps the keys that are least like the others",
    .paper = "Park et al., KeyDiff: Key Similarity-Based KV Cache Eviction, arXiv 2504.15364",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new KeyDiff(options.Int("recent"), options.Int("step")));
    },
};

}  // namespace weir
