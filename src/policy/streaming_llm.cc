// weir-plugin: policy
// StreamingLLM: attention sinks plus the newest tokens, positions inside the cache.
// Paper: "Efficient Streaming Language Models with Attention Sinks" (ICLR 2024), section 3.2 and figure 4.
//
// Rule: when the cache exceeds C, keep slots 0 .. sinks-1 and the last C - sinks. Positions are those inside the cache:
// slot s has position s. Room for incoming tokens is made before they are read (the paper's chat mode, `num_coming`),
// so the pot is never exceeded, not even within a chunk.
//
// Difference: the paper's perplexity script frees one slot per token. Moving a whole pot for one slot costs more than
// attending to it, so `step` slots are freed at once by default; step=1 is the paper's schedule.
#include <algorithm>

#include "policy/policy.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {"sinks", 4, 0, 1 << 20, true, "first tokens of the stream that always stay"},
    {"step", 0, 0, 1 << 20, true, "slots freed at once while decoding; 0 = 1/16 of the pot, 1 = exactly one at a time"},
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
    const int32_t step = step_ > 0 ? step_ : n_slots / 16;
    // Never below the sinks and one recent token, unless the incoming chunk itself leaves no more.
    return std::min(n_slots - n_coming, std::max(sinks_ + 1, n_slots - std::max(n_coming, step)));
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    KeepHeadAndTail(view.slots, sinks_, n_keep, keep);
  }

 private:
  const int32_t sinks_, step_;
};

}  // namespace

extern const PolicyInfo kStreamingLlm;
const PolicyInfo kStreamingLlm = {"streaming_llm", "keeps the first tokens (attention sinks) and the newest ones",
                                  "Xiao et al., Efficient Streaming Language Models with Attention Sinks, ICLR 2024",
                                  kOptions, [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
                                    return std::unique_ptr<Policy>(
                                        new StreamingLlm(options.Int("sinks"), options.Int("step")));
                                  }};

}  // namespace weir
