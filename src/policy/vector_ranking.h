// SPDX-License-Identifier: Apache-2.0
// What policies share that rank the slots of each head by their stored vectors alone: the newest `recent` slots and
// those of the best scores stay, one keep-set per layer and KV head, without attention.
#pragma once

#include <cstdint>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {

inline constexpr PolicyOptionInfo kVectorRankingOptions[] = {
    {.key = "recent",
     .fallback = 0,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "newest slots, always kept",
     .tune = "0|16|64|128"},
    kStepOption,
};

class VectorRanking : public Policy {
 public:
  // `options`: kVectorRankingOptions.
  VectorRanking(VectorScore score, const PolicyOptions& options)
      : score_(score), recent_(options.Int("recent")), step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.vector = score_;
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
  const VectorScore score_;
  const int32_t recent_, step_;
  SlotPicker picker_;
};

}  // namespace weir
