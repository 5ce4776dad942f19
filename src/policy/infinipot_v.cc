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
// - VaN is not pooled by default, as in the released script. pool=on is the published code's pooling by layers: in the
//   first quarter of them a visual token's norm is the mean of 7 x 7 places of its frame, in the second of 5 x 5, in
//   the third of 3 tokens in a row, in the last it is its own. Places that nothing holds count as 0. The published code
//   counts places as above, and only in square frames. Text keeps its own norms.
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
    TextOption("pool", "off", "on: value norms are means over neighbours, fewer in higher layers", "off|on"),
};

class InfiniPotV : public Policy {
 public:
  explicit InfiniPotV(const PolicyOptions& options)
      : ratio_(options.Number("ratio")),
        alpha_(options.Number("alpha")),
        recent_(options.Number("recent")),
        text_(options.Number("text")),
        pool_(options.Text("pool") == "on") {}
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
    if (pool_) PoolNorms(view);
    picker_.TakeBest(pool_ ? RankKeys{pooled_, view.scores} : RankKeys{view.scores, {}}, n, n_keep);
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

  void PoolNorms(const SlotView& view) {
    pooled_.assign(view.scores.begin(), view.scores.end());
    const int32_t quarter = 4 * view.layer / std::max(view.n_layers, 1);
    if (quarter <= 1) PoolPlaces(view, quarter == 0 ? 3 : 2);
    if (quarter == 2) PoolRow(view);
  }
  // Means over the places at most `half` rows and columns away, in the frame.
  void PoolPlaces(const SlotView& view, int64_t half) {
    const auto kernel = static_cast<float>((2 * half + 1) * (2 * half + 1));
    const auto slots = view.slots;
    for (size_t begin = 0, end; begin < slots.size(); begin = end) {
      end = begin + 1;
      if (slots[begin].modality == Modality::kText) continue;
      while (end < slots.size() && slots[end].modality != Modality::kText && slots[end].frame() == slots[begin].frame())
        ++end;
      const int64_t n_columns = std::max(1, ColumnsOf(slots[begin]));
      const auto of_frame = slots.subspan(begin, end - begin);
      for (size_t s = begin; s < end; ++s) {
        const int64_t y = slots[s].row / n_columns, x = slots[s].row % n_columns;
        float sum = 0;
        for (int64_t near = std::max<int64_t>(0, y - half); near <= y + half; ++near) {
          const int64_t first = near * n_columns + std::max<int64_t>(0, x - half),
                        last = near * n_columns + std::min(n_columns - 1, x + half);
          auto at = std::lower_bound(of_frame.begin(), of_frame.end(), first,
                                     [](const SlotMeta& slot, int64_t row) { return slot.row < row; });
          for (; at != of_frame.end() && at->row <= last; ++at) {
            sum += view.scores[begin + static_cast<size_t>(at - of_frame.begin())];
          }
        }
        pooled_[s] = sum / kernel;
      }
    }
  }
  // Means over a visual token and those that are held just before and after it.
  void PoolRow(const SlotView& view) {
    int64_t before = -1, at = -1;
    const auto value = [&](int64_t slot) { return slot < 0 ? 0 : view.scores[static_cast<size_t>(slot)]; };
    const auto pool = [&](int64_t after) {
      if (at >= 0) pooled_[static_cast<size_t>(at)] = (value(before) + value(at) + value(after)) / 3;
    };
    for (int64_t s = 0; s < std::ssize(view.slots); ++s) {
      if (view.slots[s].modality == Modality::kText) continue;
      pool(s);
      before = at;
      at = s;
    }
    pool(-1);
  }

  const double ratio_, alpha_, recent_, text_;
  const bool pool_;
  SlotPicker picker_;
  std::vector<float> novelty_, pooled_;
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
