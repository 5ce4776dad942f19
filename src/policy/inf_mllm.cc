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
// - A prompt shorter than l votes with the rows before it that voted last, up to l of them: with `votes=last`, the
//   default, what was read just before a short question decides too. `votes=own` leaves its own rows alone to decide.
//   The last l slots are protected all the same.
// - Section 3.2 has one L for the prompt's length and the window, algorithm 1 a parameter l: `votes=prompt` is l = m,
//   the rows of the call that reads the prompt, and r = n_keep - m.
// - The paper leaves open which b suits a model or a distance. `bias=share` finds it in every selection: the smallest
//   b with which at most the share `old` of the r slots is older than those that recency alone would keep.
// Differences:
// - The paper evicts once a round, after the prompt's attention, and its cache grows beyond the budget in between: set
//   `capacity` below the pot for that. Otherwise, and wherever the pot is full, room is made before a chunk is read,
//   and the rows that vote are the last of the latest prompt or chunk. Newest slots without a score yet are recent ones
//   too, up to half of what pins leave; an answer that fills the pot frees `step` slots at once, ranked by its newest
//   token.
// - per_kv_head=on takes the mean over the query heads of each KV head, and a keep-set for each.
// - A budget below l halves it instead of being an error.
// - Where a model has attention sinks, S is the attention among the slots, so that b keeps its meaning.
#include <algorithm>
#include <cmath>
#include <functional>

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
    TextOption("bias", "fixed", "fixed: b as given; share: found in every selection, by `old`", "fixed|share"),
    {.key = "old",
     .fallback = 0.05,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "bias=share: largest share of the attended slots that are older than recency alone would keep"},
    TextOption("votes", "last",
               "rows that vote: the last `recent`, some from before a short prompt; only the prompt's own; all of the "
               "prompt, as many slots being recent",
               "last|own|prompt"),
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
        found_(options.Text("bias") == "share"),
        old_(options.Number("old")),
        whole_(options.Text("votes") == "prompt"),
        own_(whole_ || options.Text("votes") == "own"),
        per_kv_head_(options.Text("per_kv_head") == "on"),
        capacity_(options.Int("capacity")),
        step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = per_kv_head_ ? Granularity::kPerHead : Granularity::kPerLayer;
    needs.evidence.rows = EvidenceRows::kLast;
    // All rows of a prompt: more than there can be.
    constexpr int32_t kAllRows = 1 << 30;
    needs.evidence.n_last = whole_ ? -kAllRows : own_ ? -recent_ : recent_;
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
    const int32_t wanted = whole_ ? view.n_rows : recent_;
    const int32_t recent = ProtectedRecent(n_keep >= wanted ? wanted : n_keep / 2, view.n_unscored, picker_.room());
    picker_.TakeNewest(recent);
    const int32_t n_candidates = std::max(0, picker_.n_slots() - recent);
    mean_.resize(view.slots.size());
    biased_.resize(view.slots.size());
    const float n_rows = static_cast<float>(std::max(1, view.n_rows)) * view.row_attention;
    for (int32_t j = 0; j < n_candidates; ++j) mean_[j] = view.scores[j] / n_rows;
    Penalise(n_candidates, found_ ? Found(n_candidates) : b_);
    picker_.TakeBest({biased_, {}}, n_candidates, n_keep);
    picker_.Finish(keep);
  }

 private:
  void Penalise(int32_t n, float b) {
    for (int32_t j = 0; j < n; ++j) {
      const float age = static_cast<float>(n - 1 - j);
      biased_[j] = mean_[j] - b * age / static_cast<float>(n);
    }
  }
  // The smallest b with which few enough old slots are kept.
  float Found(int32_t n) {
    const int32_t n_kept = std::min(picker_.room(), n), n_old = n - n_kept;
    if (n_old <= 0 || n_kept <= 0) return 0;
    const int32_t most = RoundHalfUp(old_ * n_kept);
    const auto few = [&](float b) {
      Penalise(n, b);
      order_.assign(biased_.begin(), biased_.begin() + n);
      for (float& value : order_) value = SaneScore(value);
      std::nth_element(order_.begin(), order_.begin() + (n_kept - 1), order_.end(), std::greater<>());
      const float last = order_[static_cast<size_t>(n_kept - 1)];
      return std::count_if(biased_.begin(), biased_.begin() + n_old, [&](float x) { return x >= last; }) <= most;
    };
    float largest = 0;
    for (int32_t j = 0; j < n; ++j) largest = std::max(largest, SaneScore(mean_[j]));
    if (largest == 0 || few(0)) return 0;
    // Between neighbours the penalty differs by b / n: beyond n times the largest attention, only age counts.
    float most_b = static_cast<float>(n) * largest, least_b = most_b * 1e-8f;
    for (int i = 0; i < 24; ++i) {
      const float b = std::sqrt(least_b * most_b);
      (few(b) ? most_b : least_b) = b;
    }
    return most_b;
  }

  const int32_t recent_;
  const float b_;
  const bool found_;
  const double old_;
  const bool whole_, own_, per_kv_head_;
  const int32_t capacity_, step_;
  SlotPicker picker_;
  std::vector<float> mean_, biased_, order_;
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
