// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// TOVA: the slots that the latest token attends to most.
// Paper: "Transformers are Multi-State RNNs" (EMNLP 2024), section 3.2.
//
//   s_j = mean over all query heads of A[last, j]      keep = the n_keep slots with the largest s
//
// One keep-set per layer, shared by its heads. No accumulation, no sinks, no protected window: the newest slot
// competes.
//
// Differences:
// - Room is made before a chunk is read, so the row that votes is the last one of the chunk before. A prompt longer
//   than the pot is trimmed chunk after chunk; the published code trims it once, by its last row.
// - The paper drops one slot per token; `step` slots are evicted at once by default (step=1 is the paper's schedule).
// - Positions are slots. The published code keeps keys rotated at their place in the stream, which leaves the trained
//   window on long ones.
// - Slots without a score yet are kept as recent ones, up to half of what pins leave (policy/rank.h).
#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    kStepOption,
};

class Tova : public Policy {
 public:
  explicit Tova(int32_t step) : step_(step) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerLayer;
    needs.evidence.rows = EvidenceRows::kLast;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    picker_.TakeNewest(ProtectedRecent(0, view.n_unscored, picker_.room()));
    picker_.TakeBest({view.scores, {}}, picker_.n_slots(), n_keep);
    picker_.Finish(keep);
  }

 private:
  const int32_t step_;
  SlotPicker picker_;
};

}  // namespace

extern const PolicyInfo kTova;
const PolicyInfo kTova = {
    .name = "tova",
    .summary = "keeps what the latest token attends to most",
    .paper = "Oren et al., Transformers are Multi-State RNNs, EMNLP 2024",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new Tova(options.Int("step")));
    },
};

}  // namespace weir
