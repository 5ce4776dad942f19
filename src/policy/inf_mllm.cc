// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// Inf-MLLM: slots that the new prompt attends to, with a linear penalty on age, and the newest ones.
// Paper: "Inf-MLLM: Efficient Streaming Inference of Multimodal Large Language Models on a Single GPU"
// (arXiv 2409.09086), sections 3.2 to 3.4, algorithm 1.
//
// With n slots the last l = `recent` are always kept, the N = n - l before them are candidates, of which r = n_keep - l
// are kept by
//
//   B_j = S_j - (b / N) (N - 1 - j)      S_j = mean of A over the last l rows of the prompt and over all query heads
//
// so that b is the whole penalty of the oldest slot, and 0 that of the newest candidate. The penalty counts slots of
// the present cache, not elapsed tokens. One keep-set per layer.
//
// Where the paper contradicts itself:
// - The penalty is subtracted: section 3.3 has a larger b favour new tokens.
// - S is a mean over rows and heads: a sum over either would change what a given b means.
// - The last l never compete, the older part of a longer prompt does (algorithm 1 against the prose).
// - A prompt shorter than l votes with the rows it has; the last l slots are protected all the same.
// Differences:
// - The paper evicts once a round, after the prompt's attention, and its cache grows beyond the budget in between: set
//   `capacity` below the pot for that. Otherwise, and wherever the pot is full, room is made before a chunk is read,
//   and the rows that vote are the last of the latest prompt or chunk. Newest slots without a score yet are recent ones
//   too, up to half of what pins leave; an answer that fills the pot frees `step` slots at once, ranked by its newest
//   token.
// - per_kv_head=on takes the mean over the query heads of each KV head, and a keep-set for each.
// - A budget below l halves it instead of being an error.
#include <algorithm>

#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "recent",
     .fallback = 64,
     .min = 1,
     .max = 1 << 20,
     .integral = true,
     .help = "l: newest slots, which are always kept, and last rows of the prompt, which vote",
     .tune = "16|32|64|128|256"},
    {.key = "b",
     .fallback = 0.0001,
     .min = 0,
     .max = 1e6,
     .integral = false,
     .help = "attention bias: penalty of the oldest slot, in units of attention",
     .tune = "0|0.0001|0.001|0.01|0.1"},
    TextOption("per_kv_head", "off", "select slots per KV head instead of per layer", "on|off"),
    {.key = "capacity",
     .fallback = 0,
     .min = 0,
     .max = 1 << 30,
     .integral = true,
     .help = "r + l: slots to keep after every prompt; 0 = evict only when the pot is full"},
    kStepOption,
};

class InfMllm : public Policy {
 public:
  explicit InfMllm(const PolicyOptions& options)
      : recent_(options.Int("recent")),
        b_(static_cast<float>(options.Number("b"))),
        per_kv_head_(options.Text("per_kv_head") == "on"),
        capacity_(options.Int("capacity")),
        step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = per_kv_head_ ? Granularity::kPerHead : Granularity::kPerLayer;
    needs.evidence.rows = EvidenceRows::kLast;
    needs.evidence.n_last = recent_;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  int32_t TargetAfterPrompt(int32_t n_slots) const override {
    return capacity_ == 0 ? -1 : std::min(capacity_, n_slots);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    picker_.Begin(view.slots, n_keep);
    const int32_t recent = ProtectedRecent(n_keep >= recent_ ? recent_ : n_keep / 2, view.n_unscored, picker_.room());
    picker_.TakeNewest(recent);
    const int32_t n_candidates = std::max(0, picker_.n_slots() - recent);
    biased_.resize(view.slots.size());
    const float n_rows = static_cast<float>(std::max(1, view.n_rows));
    for (int32_t j = 0; j < n_candidates; ++j) {
      const float age = static_cast<float>(n_candidates - 1 - j);
      biased_[j] = view.scores[j] / n_rows - b_ * age / static_cast<float>(n_candidates);
    }
    picker_.TakeBest({biased_, {}}, n_candidates, n_keep);
    picker_.Finish(keep);
  }

 private:
  const int32_t recent_;
  const float b_;
  const bool per_kv_head_;
  const int32_t capacity_, step_;
  SlotPicker picker_;
  std::vector<float> biased_;
};

}  // namespace

extern const PolicyInfo kInfMllm;
const PolicyInfo kInfMllm = {
    .name = "inf_mllm",
    .summary = "keeps the newest slots and what the new prompt attends to, with a penalty for old slots",
    .paper =
        "Ning et al., Inf-MLLM: Efficient Streaming Inference of Multimodal Large Language "
        "Models on a Single GPU, arXiv 2409.09086",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new InfMllm(options));
    },
};

}  // namespace weir
