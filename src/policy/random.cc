// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// Random: slots are kept at random. The control for every ranking: a policy that is no better has no useful signal.
//
// The random number of a slot is a function of the seed, its layer, its head and its token's number, not of any state:
// the same stream gives the same keep-sets, whatever was saved, restored or run in between.
//
//   draw=once    a token has one number for life. The kept slots are always a uniform sample of the whole stream, as
//                in reservoir sampling.
//   draw=again   every selection draws anew: the older a token, the more draws it must have survived.
#include "base/rng.h"
#include "policy/policy.h"
#include "policy/rank.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    {.key = "seed", .fallback = 0, .min = 0, .max = 9007199254740991.0, .integral = true, .help = "random seed"},
    TextOption("draw", "again", "once: one random score per token; again: a new score at every selection",
               "once|again"),
    TextOption("per", "head", "unit that keeps the same tokens", "pot|layer|head"),
    {.key = "recent", .fallback = 0, .min = 0, .max = 1 << 20, .integral = true, .help = "newest slots, always kept"},
    kStepOption,
};

// A number in [0, 1) of 24 bits from a chain of keys.
float Lot(uint64_t seed, uint64_t counter, int32_t layer, int32_t head, int64_t seq) {
  uint64_t key = Rng(seed).Next() ^ counter;
  for (const int64_t part : {int64_t{layer}, int64_t{head}, seq}) key = Rng(key ^ static_cast<uint64_t>(part)).Next();
  return static_cast<float>(key >> 40) * 0x1p-24f;
}

class Random : public Policy {
 public:
  explicit Random(const PolicyOptions& options)
      : seed_(static_cast<uint64_t>(options.Number("seed"))),
        again_(options.Text("draw") == "again"),
        granularity_(options.Text("per") == "pot"     ? Granularity::kGlobal
                     : options.Text("per") == "layer" ? Granularity::kPerLayer
                                                      : Granularity::kPerHead),
        recent_(options.Int("recent")),
        step_(options.Int("step")) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.granularity = granularity_;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    lots_.resize(view.slots.size());
    const uint64_t counter = again_ ? static_cast<uint64_t>(view.n_seen) : 0;
    for (size_t s = 0; s < lots_.size(); ++s) {
      lots_[s] = Lot(seed_, counter, view.layer, view.head, view.slots[s].seq);
    }
    picker_.Begin(view.slots, n_keep);
    picker_.TakeNewest(recent_);
    picker_.TakeBest({lots_, {}}, picker_.n_slots(), n_keep);
    picker_.Finish(keep);
  }

 private:
  const uint64_t seed_;
  const bool again_;
  const Granularity granularity_;
  const int32_t recent_, step_;
  SlotPicker picker_;
  std::vector<float> lots_;
};

}  // namespace

extern const PolicyInfo kRandom;
const PolicyInfo kRandom = {
    .name = "random",
    .summary = "keeps random slots: the control",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new Random(options));
    },
};

}  // namespace weir
