// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// H2O: the slots with the most accumulated attention (heavy hitters), and the newest.
// Paper: "H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models" (NeurIPS 2023), section
// 4, algorithm 1.
//
//   a_j = sum over all queries i since j was stored of A[i, j]      keep = newest `recent`, then the largest a
//
// One keep-set per layer and KV head. An evicted slot loses its sum.
//
// Differences:
// - The paper is written for as many KV heads as query heads. With fewer, the query heads of a group are reduced row by
//   row (`reduce`).
// - The paper fixes its two shares by the length of the prompt; here the budget is the pot, of which `share` is recent,
//   half by default as in the paper. `recent` gives a count instead.
// - `step` slots are freed at once by default (step=1 is the paper's schedule), and a whole chunk is added to the sums
//   before anything is evicted.
// - Early slots collect more terms: this is part of the method. normalise=count divides by the number of queries that
//   could see a slot, which is another method (ObservedAttention of kvpress).
// - Positions are slots, as in the authors' streaming version; sums are binary32, not the model's type.
#include <algorithm>

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
     .tune = "0.25|0.5|0.75|0.9"},
    {.key = "recent",
     .fallback = -1,
     .min = -1,
     .max = 1 << 20,
     .integral = true,
     .help = "number of newest slots to keep; -1 = use share"},
    TextOption("reduce", "mean", "how to combine the query heads of a KV head", "mean|sum"),
    TextOption("normalise", "none", "count: divide by the number of queries that could see the slot", "none|count"),
    kStepOption,
};

class H2o : public Policy {
 public:
  explicit H2o(const PolicyOptions& options)
      : share_(options.Number("share")),
        recent_(options.Int("recent")),
        reduce_(options.Text("reduce") == "sum" ? HeadReduce::kSum : HeadReduce::kMean),
        by_count_(options.Text("normalise") == "count"),
        step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.rows = EvidenceRows::kAll;
    needs.evidence.head_reduce = reduce_;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    std::span<const float> sums = view.scores;
    if (by_count_) {
      means_.resize(sums.size());
      for (size_t s = 0; s < sums.size(); ++s) {
        means_[s] = sums[s] / static_cast<float>(std::max<int64_t>(1, view.n_seen - view.slots[s].seq));
      }
      sums = means_;
    }
    const int32_t recent = recent_ >= 0 ? recent_ : RoundHalfUp(share_ * n_keep);
    picker_.Begin(view.slots, n_keep);
    picker_.TakeNewest(ProtectedRecent(recent, view.n_unscored, picker_.room()));
    picker_.TakeBest({sums, {}}, picker_.n_slots(), n_keep);
    picker_.Finish(keep);
  }

 private:
  const double share_;
  const int32_t recent_;
  const HeadReduce reduce_;
  const bool by_count_;
  const int32_t step_;
  SlotPicker picker_;
  std::vector<float> means_;
};

}  // namespace

extern const PolicyInfo kH2o;
const PolicyInfo kH2o = {
    .name = "h2o",
    .summary = "keeps heavy hitters (most attention since they were read) and the newest slots",
    .paper = "Zhang et al., H2O: Heavy-Hitter Oracle for Efficient Generative Inference, NeurIPS 2023",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new H2o(options));
    },
};

}  // namespace weir
