// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// FastV: from layer K on, only the visual tokens that layer K's last row attends to.
// Paper: "An Image is Worth 1/2 Tokens After Layer 2: Plug-and-Play Inference Acceleration for Large Vision-Language
// Models" (ECCV 2024), section 4.1.
//
//   s_j = mean over query heads of A[layer K - 1 (from 0), last row of the prompt, j]
//   layers from K on keep text and the round((1 - R) N) visual slots of largest s; layers before it keep all
//
// One set for all later layers and heads, chosen at the end of a prompt. N visual tokens were read so far. A prompt's
// rows from its first picture on wait behind layer K, and those of dropped tokens are not computed there
// (docs/decisions/0038-rows-wait-for-their-prompt.md).
//
// Differences:
// - This is the variant with a cache: the published evaluation chooses again at every step.
// - Rows go on through all layers where they cannot wait (rows=all, a pot that is full before the prompt ends, a prompt
//   that is saved or asked for logits before it ends, models that do not pause). The dropped ones leave the later
//   layers' slots when the prompt ends, as do those of earlier pictures.
// - Every prompt ranks all visual tokens again, and a later layer keeps those that it still has: in a stream
//   of rounds the pictures of earlier ones shrink on, below round((1 - R) N).
// - Pinned slots stay beside the share.
// - A full pot keeps the newest slots of each layer: the paper has no such case.
// - positions=abs keeps the places in the stream, as published; slots are the default, so that streams never end.
#include <algorithm>
#include <vector>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "K",
     .fallback = 2,
     .min = 1,
     .max = 1024,
     .integral = true,
     .help = "first layers, which keep everything; the model's layer count or more = all layers",
     .tune = "2|3"},
    {.key = "R",
     .fallback = 0.5,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the visual tokens that later layers drop",
     .tune = "0.25|0.5|0.75"},
    TextOption("rows", "kept",
               "kept: dropped tokens are not computed in later layers; all: they are, which costs time and saves the "
               "memory of the rows that wait",
               "kept|all"),
    TextOption("positions", "cache",
               "abs: positions in the stream, as published, which are limited to the trained context", "cache|abs"),
    kStepOption,
};

class FastV : public Policy {
 public:
  explicit FastV(const PolicyOptions& options)
      : first_(options.Int("K")),
        dropped_(options.Number("R")),
        waits_(options.Text("rows") == "kept"),
        absolute_(options.Text("positions") == "abs"),
        step_(options.Int("step")) {}

  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.positions = absolute_ ? Positions::kAbs : Positions::kCache;
    needs.granularity = Granularity::kPerLayer;
    needs.evidence.rows = EvidenceRows::kLast;
    needs.trims_prompt = true;
    needs.filter_layers = waits_ && dropped_ > 0 ? first_ : 0;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    KeepHeadAndTail(view.slots, 0, n_keep, keep);
  }

  void SelectAfterPrompt(std::span<const SlotView> views, std::span<KeepSet> keeps) override {
    // Seqs of the visual tokens to keep; a layer with other tokens than the ranking layer keeps those that both have.
    std::vector<int64_t> best;
    if (first_ < std::ssize(views)) best = Best(views[first_ - 1]);
    for (size_t g = 0; g < views.size(); ++g) KeepThose(views[g], static_cast<int32_t>(g) < first_, best, &keeps[g]);
  }
  void SelectRows(const SlotView& view, KeepSet* keep) override { KeepThose(view, false, Best(view), keep); }

 private:
  // Seqs of the visual tokens that the last row attends to most.
  std::vector<int64_t> Best(const SlotView& ranked) const {
    // A long stream has seen more than any pot holds.
    const auto n_stay =
        std::min((1 - dropped_) * static_cast<double>(ranked.n_seen_visual), static_cast<double>(ranked.slots.size()));
    return BestVisual(ranked.slots, {ranked.scores, {}}, RoundHalfUp(n_stay));
  }
  static void KeepThose(const SlotView& view, bool all, const std::vector<int64_t>& best, KeepSet* keep) {
    keep->clear();
    for (size_t s = 0; s < view.slots.size(); ++s) {
      const SlotMeta& slot = view.slots[s];
      const bool stays = all || slot.modality == Modality::kText || slot.pinned ||
                         std::binary_search(best.begin(), best.end(), slot.seq);
      if (stays) keep->push_back(static_cast<int32_t>(s));
    }
  }

  const int32_t first_;
  const double dropped_;
  const bool waits_, absolute_;
  const int32_t step_;
};

}  // namespace

extern const PolicyInfo kFastv;
const PolicyInfo kFastv = {
    .name = "fastv",
    .summary = "layers after the first few keep only the visual tokens that the last of those attends to",
    .paper = "Chen et al., An Image is Worth 1/2 Tokens After Layer 2, ECCV 2024",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new FastV(options));
    },
};

}  // namespace weir
