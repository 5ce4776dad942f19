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
// - Query heads of a group are reduced by their mean (`reduce`), u is not pooled (`kernel` 1) and nothing is protected
//   (`sinks` 0) by default. A pool runs over all slots of the head, those that NuC took included.
// - Pinned slots and sinks are taken first; alpha divides what they leave.
// - |C|/|M|: 0.5, of the slots that the catalyst leaves.
// - The catalyst is our wording of the generic instruction of section 4.4; a "{question}" in it makes it the
//   question-aware one. With `template` the chat template's end of a turn follows, so that rows vote with which the
//   model would begin to answer.
// Differences:
// - A pot that fills while the answer is written is distilled like any other.
// - alpha=1 reads no catalyst and keeps one set for all heads: their rankings are equal. alpha=0 computes no
//   likelihoods.
#include <algorithm>

#include "policy/policy.h"
#include "policy/rank.h"

namespace weir {
namespace {

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
    TextOption("catalyst", "\n\nSummarize the text above and point out what matters most in it.",
               "prompt whose attention votes; {question} stands for a question that is known before the text"),
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
};

class InfiniPot : public Policy {
 public:
  explicit InfiniPot(const PolicyOptions& options)
      : ratio_(options.Number("ratio")),
        alpha_(options.Number("alpha")),
        catalyst_(options.Text("catalyst")),
        template_(options.Text("template") == "on"),
        rows_(options.Text("rows") == "max" ? RowReduce::kMax : RowReduce::kSum),
        reduce_(options.Text("reduce") == "max" ? HeadReduce::kMax : HeadReduce::kMean),
        kernel_(options.Int("kernel")),
        pooling_(PoolingOf(options.Text("pooling"))),
        sinks_(options.Int("sinks")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.positions = Positions::kReset;
    needs.evidence.nll = alpha_ > 0;
    needs.min_slots = sinks_ + 2;
    if (alpha_ == 1) return needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.rows = EvidenceRows::kProbe;
    needs.evidence.row_reduce = rows_;
    needs.evidence.head_reduce = reduce_;
    needs.probe = catalyst_;
    needs.probe_in_template = template_;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return std::min(n_slots - n_coming, std::max(sinks_ + 1, RoundHalfUp(ratio_ * n_slots)));
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    picker_.TakeOldest(sinks_);
    if (!view.nll.empty()) {
      picker_.TakeBest({view.nll, {}}, picker_.n_slots(), RoundHalfUp(alpha_ * picker_.room()));
    }
    if (!view.scores.empty()) {
      pooled_.resize(view.scores.size());
      Pool(view.scores, kernel_, pooling_, pooled_.data());
      picker_.TakeBest({pooled_, view.scores}, picker_.n_slots(), n_keep);
    }
    picker_.Finish(keep);
  }

 private:
  const double ratio_, alpha_;
  const std::string catalyst_;
  const bool template_;
  const RowReduce rows_;
  const HeadReduce reduce_;
  const int32_t kernel_;
  const Pooling pooling_;
  const int32_t sinks_;
  SlotPicker picker_;
  std::vector<float> pooled_;
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
