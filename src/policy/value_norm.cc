// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// Value norm: the slots whose value vectors are longest.
// Paper: "InfiniPot-V: Memory-Constrained KV Cache Compression for Streaming Video Understanding" (NeurIPS 2025), its
// value-norm ranking VaN.
//
//   score_j = |v_j|
//
// One keep-set per layer and KV head, from the stored values, without attention.
//
// Differences:
// - Half of a method only: without the temporal redundancy of frames (TaR), which text does not have (see infinipot_v),
//   and without the pooling over a frame's grid.
// - `step` slots go at once; `recent` newest ones can be protected, none by default.
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

class ValueNorm : public Policy {
 public:
  ValueNorm(int32_t recent, int32_t step) : recent_(recent), step_(step) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.vector = VectorScore::kValueNorm;
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

extern const PolicyInfo kValueNorm;
const PolicyInfo kValueNorm = {
    .name = "value_norm",
    .summary = "keeps the longest value vectors",
    .paper =
        "Kim et al., InfiniPot-V: Memory-Constrained KV Cache Compression for Streaming Video "
        "Understanding, NeurIPS 2025",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new ValueNorm(options.Int("recent"), options.Int("step")));
    },
};

}  // namespace weir
