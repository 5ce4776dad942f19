// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// SirLLM: the tokens that surprised the model most when it read them, the first ones, and the newest.
// Paper: "SirLLM: Streaming Infinite Retentive LLM" (ACL 2024), section 3.
//
//   e_t = -log P(x_t | what was visible)      every round: e_t <- decay * e_t
//
// One keep-set for the whole pot. Of n_keep slots, the n_keep - sinks - recent with the largest e, the first `sinks`,
// the newest `recent`; what overlaps leave free goes to the newest.
//
// Differences:
// - The true likelihood of a token. The published code gathers row i at token i, which the model has already consumed,
//   and so gives every token the likelihood of repeating the one before it.
// - The first token of a stream has no likelihood: +infinity, which keeps it, not the maximum of its chunk.
// - The paper evicts once a round, before the round is read. So does this if the engine knows of rounds; a stream
//   without rounds frees `step` slots at once, and its likelihoods do not decay.
// - Stored values decay when a round starts, after the paper at its end: all of them alike, so no ranking differs.
// - If pins leave too little room, the newest recent slot has priority over the sinks, and these over the rest.
#include <algorithm>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"
#include "policy/surprise.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "sinks",
     .fallback = 4,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "first tokens of the stream, always kept",
     .tune = "0|4"},
    {.key = "recent",
     .fallback = 0,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "newest tokens, always kept",
     .tune = "0|32|64|128"},
    {.key = "decay",
     .fallback = 1,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "factor applied to a token's surprise after every round"},
    NllOption("exact"),
    kStepOption,
};

class SirLlm : public Policy {
 public:
  explicit SirLlm(const PolicyOptions& options)
      : sinks_(options.Int("sinks")),
        recent_(options.Int("recent")),
        decay_(static_cast<float>(options.Number("decay"))),
        normaliser_(NormaliserOf(options.Text("nll"))),
        step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.evidence.nll = normaliser_;
    needs.nll_decay = decay_;
    needs.min_slots = sinks_ + 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, sinks_ + 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    // Sinks and recent slots are ranked as well: if they are among the most surprising, no lesser slot replaces them,
    // and the room left goes to the newest.
    const int32_t n_surprising = std::max(0, n_keep - sinks_ - recent_);
    picker_.Begin(view.slots, n_keep);
    picker_.TakeNewest(std::min(recent_, 1));
    picker_.TakeOldest(sinks_);
    picker_.TakeNewest(recent_);
    picker_.TakeTop({view.nll, {}}, picker_.n_slots(), n_surprising);
    picker_.Finish(keep);
  }

 private:
  const int32_t sinks_, recent_;
  const float decay_;
  const Normaliser normaliser_;
  const int32_t step_;
  SlotPicker picker_;
};

}  // namespace

extern const PolicyInfo kSirllm;
const PolicyInfo kSirllm = {
    .name = "sirllm",
    .summary = "keeps the most surprising tokens, the first ones and the newest",
    .paper = "Yao et al., SirLLM: Streaming Infinite Retentive LLM, ACL 2024",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new SirLlm(options));
    },
};

}  // namespace weir
