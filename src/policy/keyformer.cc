// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// Keyformer: the slots with the most accumulated attention, noise added and smoothed by a temperature, and the newest.
// Paper: "Keyformer: KV Cache Reduction through Key Tokens Selection for Efficient Generative Inference" (MLSys 2024,
// arXiv 2403.09054), sections 3.2 to 3.4, algorithm 1.
//
//   f_j = sum over all queries i since j was stored of softmax_j((x[i, j] + g[i, j]) / tau_i)
//   keep = newest `recent`, then the largest f
//
// x are the scores before the softmax, g is standard Gumbel noise, tau is `tau` while a prompt is read and grows over
// an answer by (tau_end - tau) / `length` a token, up to `tau_end`: the more was evicted, the less the scores say.
//
// One keep-set per layer and KV head. An evicted slot loses its sum.
//
// From p = softmax(x) follows, for each row,
//
//   softmax_j((x + g) / tau) = p_j^(1 / tau) exp(g_j / tau) / sum over k of p_k^(1 / tau) exp(g_k / tau)
//
// so while tau is 1, which it is while a prompt is read, the weights that attention computes anyway are divided by
// exp(-g) = -ln u and summed (ops/score_noise.h). Rows of another tau are reduced from x, in a pass of their own.
//
// Differences, and where the paper is silent:
// - Noise is a function of `seed`, layer, query head, the row's number in its stream and the slot, not of any state: a
//   stream gives the same keep-sets on every run, whatever was saved or restored between.
// - The paper fixes the answer's length T beforehand; an answer's end is not known here, so `length` takes its place.
//   100 tokens from 1 to 2 are the authors' step of 0.01.
// - The paper is written for as many KV heads as query heads. With fewer, the query heads of a group are reduced row by
//   row (`reduce`).
// - The budget is the pot, not a share of the prompt; `share` of it is recent, 0.3 as in the authors' code. `recent`
//   gives a count instead.
// - `step` slots are freed at once by default (step=1 is the paper's schedule), and a whole chunk is added to the sums
//   before anything is evicted.
// - noise=none with tau = tau_end = 1 is H2O with another share.
// - On the CPU only; every row of an answer takes the second pass over the keys that H2O's do not.
#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "share",
     .fallback = 0.3,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the kept slots for the newest ones",
     .tune = "0.1|0.3|0.5|0.75"},
    {.key = "recent",
     .fallback = -1,
     .min = -1,
     .max = 1 << 20,
     .integral = true,
     .help = "number of newest slots to keep; -1 = use share"},
    TextOption("noise", "gumbel", "noise on every score before the softmax", "gumbel|none"),
    {.key = "seed",
     .fallback = 0,
     .min = 0,
     .max = 9007199254740991.0,
     .integral = true,
     .help = "random seed of the noise"},
    {.key = "tau",
     .fallback = 1,
     .min = 0.01,
     .max = 1000,
     .integral = false,
     .help = "temperature while a prompt is read",
     .tune = "0.5|1|2"},
    {.key = "tau_end",
     .fallback = 2,
     .min = 0.01,
     .max = 1000,
     .integral = false,
     .help = "temperature at the end of an answer, at least tau"},
    {.key = "length",
     .fallback = 100,
     .min = 1,
     .max = 1 << 30,
     .integral = true,
     .help = "tokens of an answer over which the temperature grows from tau to tau_end"},
    TextOption("reduce", "mean", "how to combine the query heads of a KV head", "mean|sum"),
    kStepOption,
};

class Keyformer : public Policy {
 public:
  explicit Keyformer(const PolicyOptions& options)
      : share_(options.Number("share")),
        recent_(options.Int("recent")),
        noise_{.on = true,
               .gumbel = options.Text("noise") == "gumbel",
               .seed = static_cast<uint64_t>(options.Number("seed")),
               .tau = static_cast<float>(options.Number("tau")),
               .tau_step =
                   static_cast<float>((options.Number("tau_end") - options.Number("tau")) / options.Number("length")),
               .tau_end = static_cast<float>(options.Number("tau_end"))},
        reduce_(options.Text("reduce") == "sum" ? HeadReduce::kSum : HeadReduce::kMean),
        step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = Granularity::kPerHead;
    needs.evidence.rows = EvidenceRows::kAll;
    needs.evidence.noise = noise_;
    needs.evidence.head_reduce = reduce_;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    const int32_t recent = recent_ >= 0 ? recent_ : RoundHalfUp(share_ * n_keep);
    picker_.Begin(view.slots, n_keep);
    picker_.TakeNewest(ProtectedRecent(recent, view.n_unscored, picker_.room()));
    picker_.TakeBest({view.scores, {}}, picker_.n_slots(), n_keep);
    picker_.Finish(keep);
  }

 private:
  const double share_;
  const int32_t recent_;
  const VoteNoise noise_;
  const HeadReduce reduce_;
  const int32_t step_;
  SlotPicker picker_;
};

}  // namespace

extern const PolicyInfo kKeyformer;
const PolicyInfo kKeyformer = {
    .name = "keyformer",
    .summary = "keeps the slots with most attention, with Gumbel noise and a temperature, and the newest",
    .paper = "Adnan et al., Keyformer: KV Cache Reduction through Key Tokens Selection, MLSys 2024, arXiv 2403.09054",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      if (options.Number("tau_end") < options.Number("tau")) {
        return InvalidArgument("keyformer: tau_end {} is below tau {}; the temperature grows",
                               options.Number("tau_end"), options.Number("tau"));
      }
      return std::unique_ptr<Policy>(new Keyformer(options));
    },
};

}  // namespace weir
