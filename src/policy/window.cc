// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// Window attention: the newest tokens, nothing else. The negative control: perplexity jumps as soon as the first tokens
// are evicted. Equal to streaming_llm with no sinks, positions included, so that the two differ only in the sinks.
#include "policy/policy.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    kStepOption,
};

class Window : public Policy {
 public:
  explicit Window(int32_t step) : step_(step) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs;
    needs.min_slots = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    KeepHeadAndTail(view.slots, 0, n_keep, keep);
  }

 private:
  const int32_t step_;
};

}  // namespace

extern const PolicyInfo kWindow;
const PolicyInfo kWindow = {
    .name = "window",
    .summary = "keeps the newest tokens only",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      return std::unique_ptr<Policy>(new Window(options.Int("step")));
    },
};

}  // namespace weir
