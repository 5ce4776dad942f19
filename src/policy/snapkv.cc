// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// SnapKV: the slots that the end of a prompt attends to, with their neighbours, and that end itself.
// Paper: "SnapKV: LLM Knows What You are Looking for Before Generation" (NeurIPS 2024), section 4, listing 1.
//
// Keep the last w = `window` slots and the C - w best of the others by v' (policy/observation.h), per layer and KV
// head.
//
// Differences:
// - The paper compresses once, after the whole prompt, and then grows without end: `capacity`. A full pot is compressed
//   as well, by the last rows of the previous chunk. Newest slots without a score yet count as window, up to half of
//   what pins leave.
// - Query heads of a group are reduced before the pool; the published code expands keys and values to all query heads
//   and keeps a set for each, which takes as many times the memory.
// - Ties of pooled scores, the normal case with a maximum, go to the higher score before the pool, then to the newer
//   slot.
// - If the window would fill the budget, it gets half of it instead of being an error.
// - Positions are slots; positions=abs is the published form.
#include <algorithm>

#include "policy/observation.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    WindowOption(32), KernelOption(5),  PoolingOption("avg"), kReduceOption,
    kCapacityOption,  kPositionsOption, kStepOption,
};

class SnapKv : public Policy {
 public:
  SnapKv(const Observation& observation, int32_t step) : observation_(observation), step_(step) {}
  PolicyNeeds Needs() const override { return observation_.Needs(); }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  int32_t TargetAfterPrompt(int32_t n_slots) const override { return observation_.TargetAfterPrompt(n_slots); }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    const int32_t window = observation_.WindowOf(view, n_keep, picker_.room());
    picker_.TakeNewest(window);
    const int32_t n_candidates = std::max(0, picker_.n_slots() - window);
    pooled_.resize(static_cast<size_t>(n_candidates));
    PoolCandidates(observation_, view, pooled_);
    picker_.TakeBest({pooled_, view.scores}, n_candidates, n_keep);
    picker_.Finish(keep);
  }

 private:
  const Observation observation_;
  const int32_t step_;
  SlotPicker picker_;
  std::vector<float> pooled_;
};

}  // namespace

extern const PolicyInfo kSnapkv;
const PolicyInfo kSnapkv = {
    .name = "snapkv",
    .summary = "keeps the end of the prompt and what it attends to, with neighbours",
    .paper = "Li et al., SnapKV: LLM Knows What You are Looking for Before Generation, NeurIPS 2024",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      WEIR_ASSIGN_OR_RETURN(const Observation observation, Observation::From(options));
      return std::unique_ptr<Policy>(new SnapKv(observation, options.Int("step")));
    },
};

}  // namespace weir
