// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// Weir's own policy: the newest tokens, unless older ones stand out.
//
// The published methods give a fixed share of the pot to the slots they rank best, at the expense of recent text, even
// if nothing is worth it (docs/results/policies.md). Here a token replaces a newer one only if it stands out. Of |C|
// slots, one keep-set per layer and KV head, taken in this order:
//   1. pinned slots, the newest one and the first `sinks` tokens (attention sinks: StreamingLLM 3.2);
//   2. spans that surprised the model far more than the rest of the pot did when it read them (InfiniPot's novelty,
//      3.3): -log P averaged over `kernel` neighbours, because a number without the words around it answers no
//      question, above the head's median by more than `z` robust standard deviations (1.4826 times the median
//      deviation, so that what stands out does not raise the bar for itself); most surprising first, `alpha` of |C| at
//      most;
//   3. in streams with pictures, or with a catalyst (`saddles`; in text alone they cost more than they gain,
//      docs/results/policies.md), attention saddles (Inf-MLLM 3.2): slots to which the last rows of the latest prompt
//      attend more than `saddle` times as much as an average slot gets (1/n of n slots), pooled likewise (SnapKV 4),
//      less a penalty that grows with age up to `b` (Inf-MLLM 3.3); strongest first, `beta` of |C| at most. What a
//      model's attention sinks take is no slot's: attention is what slots have of the rest;
//   4. after the first picture of a stream: the newest, up to `recent` of |C|; then of what came before, scene by scene
//      (ops/scenes.h), without what a scene's first frame showed already, tokens whose keys are least like the rest of
//      the pot's (KeyDiff) go first: one of each of the oldest scenes, up to `first` of |C|; then the same number of
//      every scene, as large as there is room for but at least `frame_rows`, newest scenes first. A few rows of many
//      scenes answer more questions about the past than all rows of a few (docs/results/video.md);
//   5. the newest.
// Nothing predicts visual tokens, so they have no surprise and do not affect that of others. Positions are those
// inside the pot. With a catalyst, its rows vote instead of the prompt's (InfiniPot 3.3), and from a round's question
// to the next round that question's do. Without one, an answer that fills the pot is ranked by its newest token alone.
#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/surprise.h"

namespace weir {
namespace {

// 1 - cos of keys that counts as a change. What a camera repeats has 0 to 0.1 here, other pictures 0.3 to 1.3.
constexpr float kSceneChange = 0.2f;

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "ratio",
     .fallback = 0.9375,
     .min = 0.01,
     .max = 1,
     .integral = false,
     .help = "|C|/|M|: share of the pot to keep when it is full",
     .tune = "0.75|0.875|0.9375"},
    {.key = "sinks",
     .fallback = 4,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "first tokens of the stream, always kept"},
    {.key = "alpha",
     .fallback = 0.35,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the kept slots that surprise may claim",
     .tune = "0|0.2|0.35|0.5"},
    {.key = "z",
     .fallback = 6,
     .min = -10,
     .max = 100,
     .integral = false,
     .help = "robust standard deviations above the median that count as a surprise",
     .tune = "2|3|4|6"},
    {.key = "beta",
     .fallback = 0.1,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the kept slots that attention may claim",
     .tune = "0|0.1|0.25"},
    {.key = "saddle",
     .fallback = 8,
     .min = 0,
     .max = 1e6,
     .integral = false,
     .help = "multiple of the average attention that counts as a saddle",
     .tune = "4|8|16"},
    {.key = "kernel",
     .fallback = 5,
     .min = 1,
     .max = 255,
     .integral = true,
     .help = "width of averaging over surprise and attention, odd; 1 = none",
     .tune = "1|5|9"},
    {.key = "b",
     .fallback = 0,
     .min = 0,
     .max = 1e6,
     .integral = false,
     .help = "attention bias: penalty of the oldest slot, in units of attention"},
    {.key = "rows",
     .fallback = 32,
     .min = 1,
     .max = 1 << 16,
     .integral = true,
     .help = "last tokens of a prompt whose attention votes"},
    // No ladders: `weir tune` measures texts, where these two have no effect.
    {.key = "recent",
     .fallback = 0.3,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "with pictures: share of the kept slots for the newest ones"},
    {.key = "frame_rows",
     .fallback = 6,
     .min = 0,
     .max = 1 << 16,
     .integral = true,
     .help = "tokens of every older scene to keep at least; 0 = treat them like other tokens"},
    {.key = "first",
     .fallback = 0.1,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "with pictures: share of the kept slots for one token of each of the oldest scenes"},
    TextOption("saddles", "pictures", "where attention may claim slots: streams with pictures or a catalyst, or all",
               "pictures|always"),
    TextOption("catalyst", "",
               "prompt whose attention votes instead; {question} stands for a question that is known before the text"),
    TextOption("template", "on", "end the catalyst like a user's turn of the chat template", "on|off"),
    NllOption("sampled"),
};

class WeirPolicy : public Policy {
 public:
  explicit WeirPolicy(const PolicyOptions& options)
      : ratio_(options.Number("ratio")),
        sinks_(options.Int("sinks")),
        alpha_(options.Number("alpha")),
        z_(options.Number("z")),
        beta_(options.Number("beta")),
        saddle_(static_cast<float>(options.Number("saddle"))),
        kernel_(options.Int("kernel")),
        b_(static_cast<float>(options.Number("b"))),
        rows_(options.Int("rows")),
        recent_(options.Number("recent")),
        frame_rows_(options.Int("frame_rows")),
        first_(options.Number("first")),
        saddles_always_(options.Text("saddles") == "always" || !options.Text("catalyst").empty()),
        catalyst_(options.Text("catalyst")),
        template_(options.Text("template") == "on"),
        normaliser_(NormaliserOf(options.Text("nll"))) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.min_slots = sinks_ + 2;
    needs.scratch_per_slot = 28;
    if (alpha_ > 0) needs.evidence.nll = normaliser_;
    if (beta_ > 0 || frame_rows_ > 0) needs.granularity = Granularity::kPerHead;
    if (frame_rows_ > 0) {
      needs.evidence.visual_vector = VectorScore::kKeyDiff;
      needs.evidence.scene_change = kSceneChange;
    }
    if (beta_ == 0) return needs;
    needs.evidence.rows = catalyst_.empty() ? EvidenceRows::kLast : EvidenceRows::kProbe;
    needs.evidence.n_last = rows_;
    needs.evidence.with_pictures = !saddles_always_;
    if (!catalyst_.empty()) {
      needs.probe = catalyst_;
      needs.probe_in_template = template_;
      needs.question_rows = rows_;
    }
    return needs;
  }
  PolicyNeeds NeedsOfText() const override {
    PolicyNeeds needs = Needs();
    needs.scratch_per_slot = 20;
    needs.evidence.visual_vector = VectorScore::kNone;
    needs.evidence.scene_change = 0;
    if (needs.evidence.with_pictures) needs.evidence.rows = EvidenceRows::kNone;
    // Surprise is the same for all heads.
    if (needs.evidence.rows == EvidenceRows::kNone) needs.granularity = Granularity::kGlobal;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return std::min(n_slots - n_coming, std::max(sinks_ + 1, RoundHalfUp(ratio_ * n_slots)));
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    const int32_t n = static_cast<int32_t>(view.slots.size());
    picker_.Begin(view.slots, n_keep);
    const int32_t n_recent = ProtectedRecent(1, view.n_unscored, picker_.room());
    picker_.TakeNewest(1);
    picker_.TakeOldest(sinks_);
    picker_.TakeNewest(n_recent);
    pooled_.resize(view.slots.size());
    if (!view.nll.empty()) {
      Pool(view.nll, kernel_, Pooling::kAvg, pooled_.data());
      for (int32_t j = 0; j < n; ++j) {
        if (view.slots[j].modality != Modality::kText) pooled_[j] = -std::numeric_limits<float>::infinity();
      }
      TakeAbove(Threshold(pooled_), view.nll, n, RoundHalfUp(alpha_ * n_keep));
    }
    if (!view.scores.empty() && (saddles_always_ || view.n_seen_visual > 0)) {
      Pool(view.scores, kernel_, Pooling::kAvg, pooled_.data());
      const float n_rows = static_cast<float>(std::max(1, view.n_rows)) * view.row_attention;
      for (int32_t j = 0; j < n; ++j) {
        pooled_[j] = pooled_[j] / n_rows - b_ * static_cast<float>(n - 1 - j) / static_cast<float>(n);
      }
      TakeAbove(saddle_ / static_cast<float>(std::max(1, n)), view.scores, n, RoundHalfUp(beta_ * n_keep));
    }
    if (frame_rows_ > 0 && !view.visual.empty()) {
      picker_.TakeNewest(RoundHalfUp(recent_ * n_keep));
      TakeOfScenes(view, RoundHalfUp(first_ * n_keep));
    }
    picker_.Finish(keep);
  }

 private:
  // Slots of one scene that are not taken: left_[begin, end), the best last, so that taking it is short.
  struct Scene {
    int32_t begin = 0, end = 0;
    int32_t size() const { return end - begin; }
  };
  // One slot of each of the oldest scenes, `n_first` in all, then equally many of each scene.
  void TakeOfScenes(const SlotView& view, int32_t n_first) {
    FindScenes(view);
    for (const Scene& scene : scenes_) {
      std::sort(left_.begin() + scene.begin, left_.begin() + scene.end, [&](int32_t a, int32_t b) {
        return RanksBefore({view.visual, {}}, b, a);
      });
    }
    for (size_t i = scenes_.size(); i > 0 && n_first > 0; --i) n_first -= TakeBestOf(&scenes_[i - 1], 1);
    int32_t n_each = frame_rows_;
    for (int32_t most = std::max(n_each, picker_.room()); n_each < most;) {
      const int32_t middle = n_each + (most - n_each + 1) / 2;
      if (Slots(middle) <= picker_.room()) {
        n_each = middle;
      } else {
        most = middle - 1;
      }
    }
    for (Scene& scene : scenes_) TakeBestOf(&scene, n_each);
  }
  // Scenes with slots left, newest first.
  void FindScenes(const SlotView& view) {
    left_.clear();
    left_.reserve(view.slots.size());
    scenes_.clear();
    scenes_.reserve(view.slots.size());
    float number = 0;
    for (int32_t slot = picker_.n_slots() - 1; slot >= 0; --slot) {
      const float of = view.scenes[slot];
      if (of <= 0 || picker_.taken(slot)) continue;
      const auto at = static_cast<int32_t>(left_.size());
      if (of != number) scenes_.push_back({at, at});
      number = of;
      left_.push_back(slot);
      scenes_.back().end = at + 1;
    }
  }
  // Takes up to `count` of a scene's slots while there is room; how many.
  int32_t TakeBestOf(Scene* scene, int32_t count) {
    const int32_t n = std::min({count, picker_.room(), scene->size()});
    for (int32_t i = 0; i < n; ++i) picker_.Take(left_[--scene->end]);
    return n;
  }
  // Slots of all scenes if each has `count` at most.
  int64_t Slots(int32_t count) const {
    int64_t sum = 0;
    for (const Scene& scene : scenes_) sum += std::min(count, scene.size());
    return sum;
  }
  // Median + z robust standard deviations of the finite ones among `values`.
  float Threshold(std::span<const float> values) {
    const float median = Median(values, 0);
    const double deviation = Median(values, median);
    return static_cast<float>(median + z_ * 1.4826 * deviation);
  }
  // Upper median of |value - centre| over the finite values, or of the values themselves for centre 0; 0 when there are
  // none. REQUIRES: values >= 0 for centre 0.
  float Median(std::span<const float> values, float centre) {
    sorted_.clear();
    for (float value : values) {
      if (std::isfinite(value)) sorted_.push_back(std::fabs(value - centre));
    }
    if (sorted_.empty()) return 0;
    const auto middle = sorted_.begin() + static_cast<int64_t>(sorted_.size() / 2);
    std::nth_element(sorted_.begin(), middle, sorted_.end());
    return *middle;
  }
  // The best `count` of the slots whose pooled value is above `threshold`.
  void TakeAbove(float threshold, std::span<const float> unpooled, int32_t n, int32_t count) {
    int32_t n_above = 0;
    for (int32_t j = 0; j < n; ++j) n_above += pooled_[j] > threshold && !picker_.taken(j);
    picker_.TakeBest({pooled_, unpooled}, n, std::min(count, n_above));
  }

  const double ratio_;
  const int32_t sinks_;
  const double alpha_, z_, beta_;
  const float saddle_;
  const int32_t kernel_;
  const float b_;
  const int32_t rows_;
  const double recent_;
  const int32_t frame_rows_;
  const double first_;
  const bool saddles_always_;
  const std::string catalyst_;
  const bool template_;
  const Normaliser normaliser_;
  SlotPicker picker_;
  std::vector<float> pooled_, sorted_;
  std::vector<int32_t> left_;
  std::vector<Scene> scenes_;
};

}  // namespace

extern const PolicyInfo kWeir;
const PolicyInfo kWeir = {
    .name = "weir",
    .summary =
        "keeps the newest tokens, older ones that were far more surprising than the rest, and rows of older scenes",
    .paper = "StreamingLLM, InfiniPot, Inf-MLLM and SnapKV combined",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      if (options.Int("kernel") % 2 == 0) return InvalidArgument("policy option kernel must be odd");
      return std::unique_ptr<Policy>(new WeirPolicy(options));
    },
};

}  // namespace weir
