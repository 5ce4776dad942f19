// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// LOOK-M: text before pictures, and of each the heavy hitters; the newest always.
// Paper: "LOOK-M: Look-Once Optimization in KV Cache for Efficient Multimodal Long-Context Inference" (Findings of
// EMNLP 2024, arXiv 2406.18139), section 3: attention summed over all queries as in H2O, with a text prior: visual
// tokens rank behind every text token.
//
//   a_j = sum over all queries i since j was stored of A[i, j]     keep = newest, then text by a, then visual tokens by
//   a
//
// One keep-set per layer and KV head.
//
// Differences:
// - The paper merges what it evicts into the kept entry of the nearest key (merge=average, pivot or weighted;
//   engine/session/slot_merger.h has the sums). By default nothing is merged: a kept token is unchanged. Text that is
//   evicted is merged as well, and pinned slots receive nothing.
// - The paper merges once. A stream merges with every selection, and what a slot received before is not counted: the
//   newest weighs most. Keys are merged un-rotated, the paper's as they are rotated.
// - The paper compresses once, after the prompt, by ratios of its length; here the budget is the pot, of which `share`
//   is recent, and a pot that fills again is compressed again.
// - Text alone may be more than a pot holds: it is then ranked by a, and of the visual tokens only recent ones are
//   kept.
#include <algorithm>
#include <limits>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "share",
     .fallback = 0.5,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the kept slots for the newest ones",
     .tune = "0.1|0.25|0.5|0.75"},
    TextOption("reduce", "mean", "how to combine the query heads of a KV head", "mean|sum"),
    TextOption(
        "merge", "none",
        "what becomes of evicted slots: forgotten, or merged into the kept slot of the nearest key by a mean, by a "
        "mean of means with it, or weighted by nearness",
        "none|average|pivot|weighted"),
    kStepOption,
};

Merge MergeOf(std::string_view word) {
  return word == "average"    ? Merge::kAverage
         : word == "pivot"    ? Merge::kPivot
         : word == "weighted" ? Merge::kWeighted
                              : Merge::kNone;
}

class LookM : public Policy {
 public:
  explicit LookM(const PolicyOptions& options)
      : share_(options.Number("share")),
        reduce_(options.Text("reduce") == "sum" ? HeadReduce::kSum : HeadReduce::kMean),
        merge_(MergeOf(options.Text("merge"))),
        step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.rows = EvidenceRows::kAll;
    needs.evidence.head_reduce = reduce_;
    needs.min_slots = 2;
    needs.merge = merge_;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    picker_.TakeNewest(ProtectedRecent(RoundHalfUp(share_ * n_keep), view.n_unscored, picker_.room()));
    text_.assign(view.scores.begin(), view.scores.end());
    int32_t n_text = 0;
    for (int32_t s = 0; s < picker_.n_slots(); ++s) {
      if (view.slots[s].modality != Modality::kText) {
        text_[s] = -std::numeric_limits<float>::infinity();
      } else if (!picker_.taken(s)) {
        ++n_text;
      }
    }
    picker_.TakeBest({text_, {}}, picker_.n_slots(), n_text);
    picker_.TakeBest({view.scores, {}}, picker_.n_slots(), n_keep);
    picker_.Finish(keep);
  }

 private:
  const double share_;
  const HeadReduce reduce_;
  const Merge merge_;
  const int32_t step_;
  SlotPicker picker_;
  std::vector<float> text_;
};

}  // namespace

extern const PolicyInfo kLookm;
const PolicyInfo kLookm = {
    .name = "lookm",
    .summary = "keeps the newest slots, then text before pictures, both by accumulated attention",
    .paper =
        "Wan et al., LOOK-M: Look-Once Optimization in KV Cache for Efficient Multimodal "
        "Long-Context Inference, EMNLP 2024",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new LookM(options));
    },
};

}  // namespace weir
