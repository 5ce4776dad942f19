// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// InfiniPot-V: when the pot is full, keep what is new against the last frames, and the longest value vectors.
// Paper: "InfiniPot-V: Memory-Constrained KV Cache Compression for Streaming Video Understanding" (NeurIPS 2025, arXiv
// 2506.15745): temporal-axis redundancy TaR (section 3.2) and value norm VaN (3.3), no attention and no question.
//
//   TaR  the newest floor(`recent` x frames) frames, at least one, are recent and stay; an older visual token scores
//        -mean over recent frames of cos(its key, the key at the same place of that frame)
//   VaN  |v|
//   T = round(alpha |C|) tokens by TaR, recent frames included; then the longest values of all others, until |C| stay
//
// One keep-set per layer and KV head; |C| = ratio |M|, 24 of 32 frames in the paper.
//
// Differences:
// - Keys are compared un-rotated: a frame's position in the pot does not matter. The paper's keys carry the positions
//   of its model.
// - Places are the tokens' own. The published code counts them through what a head happens to hold, which after the
//   first compression is no longer a frame.
// - Streams here hold questions and answers: the newest text takes up to `text` of what stays, the rest of the text
//   competes by VaN. Pin a system prompt that must be kept.
// - VaN is not pooled over time, height and width, as in the released script.
#include <algorithm>
#include <limits>

#include "policy/policy.h"
#include "policy/rank.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "ratio",
     .fallback = 0.75,
     .min = 0.01,
     .max = 1,
     .integral = false,
     .help = "|C|/|M|: share of the pot to keep in a compression",
     .tune = "0.5|0.75|0.875"},
    {.key = "alpha",
     .fallback = 0.5,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the kept slots chosen by TaR, the rest by VaN",
     .tune = "0|0.25|0.5|0.75|1"},
    {.key = "recent",
     .fallback = 0.25,
     .min = 0.01,
     .max = 1,
     .integral = false,
     .help = "share of the frames that counts as recent",
     .tune = "0.125|0.25|0.5"},
    {.key = "text",
     .fallback = 0.25,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the kept slots for the newest text",
     .tune = "0|0.25|0.5"},
};

class InfiniPotV : public Policy {
 public:
  explicit InfiniPotV(const PolicyOptions& options)
      : ratio_(options.Number("ratio")),
        alpha_(options.Number("alpha")),
        recent_(options.Number("recent")),
        text_(options.Number("text")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.vector = VectorScore::kValueNorm;
    needs.evidence.recent_frames = alpha_ > 0 ? recent_ : 0;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return std::min(n_slots - n_coming, std::max(1, RoundHalfUp(ratio_ * n_slots)));
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    const int32_t n = picker_.n_slots();
    int32_t n_text = RoundHalfUp(text_ * n_keep);
    for (int32_t s = n - 1; s >= 0 && n_text > 0 && picker_.room() > 0; --s) {
      if (view.slots[s].modality != Modality::kText) continue;
      picker_.Take(s);
      --n_text;
    }
    if (alpha_ > 0) TakeByNovelty(view, RoundHalfUp(alpha_ * picker_.room()));
    picker_.TakeBest({view.scores, {}}, n, n_keep);
    picker_.Finish(keep);
  }

 private:
  void TakeByNovelty(const SlotView& view, int32_t count) {
    const std::vector<int64_t> recent = RecentFrames(view.slots, recent_);
    if (recent.empty()) return;
    novelty_.assign(view.slots.size(), -std::numeric_limits<float>::infinity());
    int32_t n_older = 0;
    for (int32_t s = picker_.n_slots() - 1; s >= 0; --s) {
      const SlotMeta& m = view.slots[s];
      if (m.modality == Modality::kText || picker_.taken(s)) continue;
      if (m.frame() < recent.front()) {
        novelty_[s] = view.novelty[s];
        ++n_older;
      } else if (count > 0 && picker_.room() > 0) {
        picker_.Take(s);
        --count;
      }
    }
    picker_.TakeBest({novelty_, {}}, picker_.n_slots(), std::min(count, n_older));
  }

  const double ratio_, alpha_, recent_, text_;
  SlotPicker picker_;
  std::vector<float> novelty_;
};

}  // namespace

extern const PolicyInfo kInfinipotV;
const PolicyInfo kInfinipotV = {
    .name = "infinipot_v",
    .summary = "keeps tokens that differ from the last frames, and the longest value vectors",
    .paper =
        "Kim et al., InfiniPot-V: Memory-Constrained KV Cache Compression for Streaming Video "
        "Understanding, NeurIPS 2025",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new InfiniPotV(options));
    },
};

}  // namespace weir
