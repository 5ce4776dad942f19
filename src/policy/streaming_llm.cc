// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// StreamingLLM: attention sinks plus the newest tokens, positions inside the cache.
// Paper: "Efficient Streaming Language Models with Attention Sinks" (ICLR 2024), section 3.2 and figure 4.
//
// Rule: when the cache exceeds C, keep slots 0 .. sinks-1 and the last C - sinks. Positions are those inside the cache:
// slot s has position s. Room for incoming tokens is made before they are read (the paper's chat mode, `num_coming`),
// so the pot is never exceeded, not even within a chunk.
//
// Differences:
// - The paper's perplexity script frees one slot per token. Moving a whole pot for one slot costs more than attending
//   to it, so `step` slots are freed at once by default; step=1 is the paper's schedule.
// - Where pinned slots leave too little room, the newest slot goes before the sinks, these before the rest of the
// window.
#include "policy/policy.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "sinks",
     .fallback = 4,
     .min = 0,
     .max = 1 << 20,
     .integral = true,
     .help = "first tokens of the stream, always kept",
     .tune = "0|1|4|8|16"},
    kStepOption,
};

class StreamingLlm : public Policy {
 public:
  StreamingLlm(int32_t sinks, int32_t step) : sinks_(sinks), step_(step) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.min_slots = sinks_ + 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, sinks_ + 1);  // the sinks and a recent token
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    KeepHeadAndTail(view.slots, sinks_, n_keep, keep);
  }

 private:
  const int32_t sinks_, step_;
};

}  // namespace

extern const PolicyInfo kStreamingLlm;
const PolicyInfo kStreamingLlm = {
    .name = "streaming_llm",
    .summary = "keeps the first tokens (attention sinks) and the newest ones",
    .paper = "Xiao et al., Efficient Streaming Language Models with Attention Sinks, ICLR 2024",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new StreamingLlm(options.Int("sinks"), options.Int("step")));
    },
};

}  // namespace weir
