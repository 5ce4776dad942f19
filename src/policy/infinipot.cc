// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// InfiniPot: when the pot is full, distil it into the tokens that surprised the model and those that a catalyst prompt
// attends to.
// Paper: "InfiniPot: Infinite Context Processing on Memory-Constrained LLMs" (EMNLP 2024, arXiv 2410.01518), section 3:
// continual context distillation (3.2), catalyst prompt CaP and novelty under compression NuC (3.3), CR-RoPE (3.5).
//
//   n_t = -log P(x_t | the pot when it was read)      u_t = sum over the catalyst's rows p of A[p, t]
//   T = round(alpha |C|) slots with the largest n, then the largest u of the rest, until |C| = ratio |M| stay
//
// One keep-set per layer and KV head. Positions are those inside the pot after every distillation.
//
// Where the paper is silent:
// - A kept token keeps the likelihood it had when it was read: none can be computed later, because heads come to hold
//   different tokens. It is ranked per head over what that head holds. The first token of a stream has +infinity.
// - Nothing predicts a visual token: it counts as the median likelihood of the text that the head holds, and u decides
//   among visual tokens. Without any text they are equal.
// - Query heads of a group are reduced by their mean (`reduce`), u is not pooled (`kernel` 1) and nothing is protected
//   (`sinks` 0) by default. A pool runs over all slots of the head, those that NuC took included.
// - Pinned slots and sinks are taken first; alpha divides what they leave.
// - |C|/|M|: 0.5, of the slots that the catalyst leaves. Section 6 leaves open a ratio that adapts to the input:
//   `cover` keeps as few slots as hold this share of u, mean over layers and heads, never more than `ratio` and never
//   fewer than a fourth of it. The first four slots, which every text's rows attend to, do not count.
// - The catalyst is our wording of the generic instruction of section 4.4; a "{question}" in it makes it the
//   question-aware one. cap_g, cap_g1, cap_g2 and cap_q name our wordings of table 2's four. With `template` the chat
//   template's end of a turn follows, so that rows vote with which the model would begin to answer.
// - Table 3's "w/o CaP": catalyst=none reads none, and the newest token's attention takes its place (TOVA's score).
// Differences:
// - Before a question is read, room is made for it and for its answer, an eighth of the pot at most for that: a pot
//   that fills while the answer is written is distilled like any other.
// - alpha=1 reads no catalyst and keeps one set for all heads: their rankings are equal. alpha=0 computes no
//   likelihoods.
// - positions=reset is CR-RoPE. `cache` numbers entries likewise, but makes room for each chunk instead of distilling a
//   pot that is completely full; `abs` keeps the places in the stream: the ablation without CR-RoPE (figure 5), which
//   ends with the trained context.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/surprise.h"

namespace weir {
namespace {

constexpr const char* kGeneralCatalyst = "\n\nSummarize the text above and point out what matters most in it.";

// Table 2's kinds of catalyst, in our words.
constexpr std::pair<std::string_view, const char*> kWordings[] = {
    {"cap_g", kGeneralCatalyst},
    {"cap_g1", "\n\nGive a short account of what was just read and stress its key points."},
    {"cap_g2", "\n\nWhat is important in the passage above? Restate its main facts."},
    {"cap_q", "\n\nFind in the text above what answers this question: {question}"},
};

std::string WordingOf(const std::string& catalyst) {
  for (const auto& [name, words] : kWordings) {
    if (catalyst == name) return words;
  }
  return catalyst;
}

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "ratio",
     .fallback = 0.5,
     .min = 0.01,
     .max = 1,
     .integral = false,
     .help = "|C|/|M|: share of the pot to keep in a distillation",
     .tune = "0.25|0.5|0.75|0.875"},
    {.key = "alpha",
     .fallback = 0.5,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the kept slots chosen by surprise, the rest by the catalyst",
     .tune = "0|0.25|0.5|0.75|1"},
    {.key = "cover",
     .fallback = 0,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "keep as few slots as the catalyst gives this share of its attention to, a fourth of `ratio` to all of "
             "it; 0 = always `ratio`"},
    TextOption("catalyst", kGeneralCatalyst,
               "prompt whose attention votes; {question} stands for a question that is known before the text; cap_g, "
               "cap_g1, cap_g2 and cap_q are wordings; none: the newest token votes"),
    TextOption("template", "on", "end the catalyst like a user's turn of the chat template", "on|off"),
    TextOption("rows", "sum", "how to combine the catalyst's rows", "sum|max"),
    TextOption("reduce", "mean", "how to combine the query heads of a KV head", "mean|max"),
    {.key = "kernel",
     .fallback = 1,
     .min = 1,
     .max = 255,
     .integral = true,
     .help = "width of pooling over the catalyst's attention, odd; 1 = none",
     .tune = "1|3|5|9"},
    TextOption("pooling", "avg", "how to pool neighbours", "avg|max"),
    {.key = "sinks",
     .fallback = 0,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "first tokens of the stream, always kept"},
    TextOption("positions", "reset",
               "reset: numbered anew by whole distillations (CR-RoPE); abs: positions in the stream, which are limited "
               "to the trained context",
               "reset|cache|abs"),
    NllOption("exact"),
};

class InfiniPot : public Policy {
 public:
  explicit InfiniPot(const PolicyOptions& options)
      : ratio_(options.Number("ratio")),
        alpha_(options.Number("alpha")),
        cover_(options.Number("cover")),
        catalyst_(WordingOf(options.Text("catalyst"))),
        template_(options.Text("template") == "on"),
        rows_(options.Text("rows") == "max" ? RowReduce::kMax : RowReduce::kSum),
        reduce_(options.Text("reduce") == "max" ? HeadReduce::kMax : HeadReduce::kMean),
        kernel_(options.Int("kernel")),
        pooling_(PoolingOf(options.Text("pooling"))),
        sinks_(options.Int("sinks")),
        positions_(options.Text("positions")),
        normaliser_(NormaliserOf(options.Text("nll"))) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.positions = positions_ == "abs"     ? Positions::kAbs
                      : positions_ == "cache" ? Positions::kCache
                                              : Positions::kReset;
    needs.scratch_per_slot = 28;
    if (alpha_ > 0) needs.evidence.nll = normaliser_;
    needs.min_slots = sinks_ + 2;
    if (alpha_ == 1) return needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.head_reduce = reduce_;
    if (catalyst_ == "none") {
      needs.evidence.rows = EvidenceRows::kLast;
      return needs;
    }
    needs.evidence.rows = EvidenceRows::kProbe;
    needs.evidence.row_reduce = rows_;
    needs.probe = catalyst_;
    needs.probe_in_template = template_;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return std::min(n_slots - n_coming, std::max(sinks_ + 1, RoundHalfUp(ratio_ * n_slots)));
  }
  void SelectAll(std::span<const SlotView> views, int32_t n_keep, std::span<KeepSet> keeps) override {
    if (cover_ > 0 && !views.empty() && !views[0].scores.empty()) n_keep = Covering(views, n_keep);
    for (size_t i = 0; i < views.size(); ++i) Select(views[i], n_keep, &keeps[i]);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    picker_.TakeOldest(sinks_);
    pooled_.resize(view.scores.size());
    if (!view.scores.empty()) Pool(view.scores, kernel_, pooling_, pooled_.data());
    if (!view.nll.empty()) {
      picker_.TakeBest(Surprise(view), picker_.n_slots(), RoundHalfUp(alpha_ * picker_.room()));
    }
    if (!view.scores.empty()) picker_.TakeBest({pooled_, view.scores}, picker_.n_slots(), n_keep);
    picker_.Finish(keep);
  }

 private:
  // Slots that hold the share `cover` of the attention, mean over the groups, in [n_keep / 4, n_keep]. Pinned slots are
  // kept whatever they hold.
  int32_t Covering(std::span<const SlotView> views, int32_t n_keep) {
    constexpr size_t kFirst = 4;
    int64_t n_all = 0;
    int32_t n_pinned = 0;
    for (const SlotView& view : views) {
      pooled_.assign(view.scores.begin() + std::min(kFirst, view.scores.size()), view.scores.end());
      for (float& score : pooled_) score = SaneScore(score);
      std::sort(pooled_.begin(), pooled_.end(), std::greater<>());
      double left = 0;
      for (const float score : pooled_) left += score;
      left *= cover_;
      size_t n = 0;
      for (; n < pooled_.size() && left > 0; ++n) left -= pooled_[n];
      n_all += static_cast<int64_t>(n + kFirst);
      n_pinned = std::max(n_pinned, static_cast<int32_t>(std::ranges::count_if(view.slots, &SlotMeta::pinned)));
    }
    const auto mean = static_cast<int32_t>(n_all / std::ssize(views));
    const int32_t least = std::min(n_keep, std::max({n_keep / 4, n_pinned + 1, sinks_ + 1}));
    return std::clamp(mean, least, n_keep);
  }
  // The likelihoods, those of visual tokens filled in.
  RankKeys Surprise(const SlotView& view) {
    const auto visual = [](const SlotMeta& slot) { return slot.modality != Modality::kText; };
    if (std::none_of(view.slots.begin(), view.slots.end(), visual)) return {view.nll, {}};
    text_.clear();
    text_.reserve(view.slots.size());  // no doubling: plans count these bytes
    nll_.assign(view.nll.begin(), view.nll.end());
    ties_.assign(view.slots.size(), 0);
    for (size_t s = 0; s < view.slots.size(); ++s) {
      if (!visual(view.slots[s]) && std::isfinite(view.nll[s])) text_.push_back(view.nll[s]);
    }
    const float median = Median();
    for (size_t s = 0; s < view.slots.size(); ++s) {
      if (!visual(view.slots[s])) continue;
      nll_[s] = median;
      if (!pooled_.empty()) ties_[s] = pooled_[s];
    }
    return {nll_, ties_};
  }
  // Of text_, whose order it changes; between the two in the middle.
  float Median() {
    if (text_.empty()) return 0;
    const auto middle = text_.begin() + std::ssize(text_) / 2;
    std::nth_element(text_.begin(), middle, text_.end());
    if (text_.size() % 2 == 1) return *middle;
    return (*std::max_element(text_.begin(), middle) + *middle) / 2;
  }

  const double ratio_, alpha_, cover_;
  const std::string catalyst_;
  const bool template_;
  const RowReduce rows_;
  const HeadReduce reduce_;
  const int32_t kernel_;
  const Pooling pooling_;
  const int32_t sinks_;
  const std::string positions_;
  const Normaliser normaliser_;
  SlotPicker picker_;
  std::vector<float> pooled_, nll_, ties_, text_;
};

}  // namespace

extern const PolicyInfo kInfinipot;
const PolicyInfo kInfinipot = {
    .name = "infinipot",
    .summary = "distils a full pot into surprising tokens and tokens that a catalyst prompt attends to",
    .paper = "Kim et al., InfiniPot: Infinite Context Processing on Memory-Constrained LLMs, EMNLP 2024",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      if (options.Int("kernel") % 2 == 0) return InvalidArgument("policy option kernel must be odd");
      if (options.Number("alpha") < 1 && options.Text("catalyst").empty() && options.Text("template") == "off") {
        return InvalidArgument("policy infinipot needs a catalyst, or alpha=1");
      }
      return std::unique_ptr<Policy>(new InfiniPot(options));
    },
};

}  // namespace weir
