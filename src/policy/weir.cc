// weir-plugin: policy
// Weir's own policy: what the published ones showed to work, in one distillation.
//
// When the pot is full, |C| = ratio |M| slots stay, one keep-set per layer and KV head, taken in this order:
//   1. pinned slots and the first `sinks` tokens (attention sinks: StreamingLLM 3.2);
//   2. the newest `recent` share of |C|: what the next words depend on most (all streaming methods);
//   3. `alpha` of what is left: the tokens that surprised the model most when it read them (InfiniPot's novelty, 3.3),
//      as spans: likelihoods are averaged over `kernel` neighbours, because a number without the words around it
//      answers no question;
//   4. the rest: the tokens that the probe attends to (InfiniPot's catalyst, 3.3), pooled likewise (SnapKV 4), less a
//      penalty that grows with age up to `b` (Inf-MLLM 3.3). While a round is answered its question is the probe: what
//      it attends to stays (Inf-MLLM 3.2).
// Positions are those inside the pot.
#include <algorithm>

#include "policy/policy.h"
#include "policy/rank.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {"ratio", 0.75, 0.01, 1, false, "|C|/|M|: share of the pot that a distillation keeps", "0.5|0.75|0.875"},
    {"sinks", 4, 0, 1 << 20, true, "first tokens of the stream that always stay"},
    {"recent", 0.5, 0, 1, false, "share of what stays that is simply the newest", "0.25|0.5|0.75"},
    {"alpha", 0.5, 0, 1, false, "share of the rest that is chosen by surprise, the other part by the probe", "0|0.25|0.5|0.75|1"},
    {"kernel", 5, 1, 255, true, "neighbours that both are pooled over, odd; 1 = none", "1|3|5|9"},
    {"b", 0, 0, 1e6, false, "attention bias: the penalty of the oldest slot, in units of attention"},
    {"question_rows", 32, 0, 1 << 16, true, "last tokens of a question that vote while it is answered; 0 = none"},
    TextOption("catalyst", "\n\nSummarize the text above and point out what matters most in it.",
               "text whose attention votes while reading; {question} in it stands for the question"),
    TextOption("template", "on", "the catalyst ends like a user's turn of the chat template", "on|off"),
};

class WeirPolicy : public Policy {
 public:
  explicit WeirPolicy(const PolicyOptions& options)
      : ratio_(options.Number("ratio")),
        sinks_(options.Int("sinks")),
        recent_(options.Number("recent")),
        alpha_(options.Number("alpha")),
        kernel_(options.Int("kernel")),
        b_(static_cast<float>(options.Number("b"))),
        question_rows_(options.Int("question_rows")),
        catalyst_(options.Text("catalyst")),
        template_(options.Text("template") == "on") {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.positions = Positions::kReset;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.rows = EvidenceRows::kProbe;
    needs.evidence.nll = alpha_ > 0;
    needs.probe = catalyst_;
    needs.probe_in_template = template_;
    needs.question_rows = question_rows_;
    needs.min_slots = sinks_ + 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return std::min(n_slots - n_coming, std::max(sinks_ + 1, RoundHalfUp(ratio_ * n_slots)));
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    const int32_t n = static_cast<int32_t>(view.slots.size());
    picker_.Begin(view.slots, n_keep);
    picker_.TakeOldest(sinks_);
    picker_.TakeNewest(ProtectedRecent(RoundHalfUp(recent_ * n_keep), view.n_unscored, n_keep));
    pooled_.resize(view.slots.size());
    if (!view.nll.empty()) {
      Pool(view.nll, kernel_, Pooling::kAvg, pooled_.data());
      picker_.TakeBest({pooled_, view.nll}, n, RoundHalfUp(alpha_ * picker_.room()));
    }
    Pool(view.scores, kernel_, Pooling::kAvg, pooled_.data());
    const float n_rows = static_cast<float>(std::max(1, view.n_rows));
    for (int32_t j = 0; j < n; ++j) {
      pooled_[j] = pooled_[j] / n_rows - b_ * static_cast<float>(n - 1 - j) / static_cast<float>(n);
    }
    picker_.TakeBest({pooled_, view.scores}, n, n_keep);
    picker_.Finish(keep);
  }

 private:
  const double ratio_;
  const int32_t sinks_;
  const double recent_, alpha_;
  const int32_t kernel_;
  const float b_;
  const int32_t question_rows_;
  const std::string catalyst_;
  const bool template_;
  SlotPicker picker_;
  std::vector<float> pooled_;
};

}  // namespace

extern const PolicyInfo kWeir;
const PolicyInfo kWeir = {"weir", "keeps sinks, the newest, surprising spans, and what the probe or the question attends to",
                          "StreamingLLM, InfiniPot, Inf-MLLM and SnapKV combined", kOptions,
                          [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
                            if (options.Int("kernel") % 2 == 0) return InvalidArgument("policy option kernel must be odd");
                            return std::unique_ptr<Policy>(new WeirPolicy(options));
                          }};

}  // namespace weir
