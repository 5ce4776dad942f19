// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// PyramidKV: SnapKV's ranking, with more slots for lower layers and fewer for higher ones.
// Paper: "PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling" (arXiv 2406.02069),
// section 4.
//
// With C slots on average, a window of w, n slots before the selection and L layers, layer l keeps
//
//   lo = (C - w) / beta      hi = 2 (C - w) - lo      where hi would exceed n - w: hi = n - w, lo = 2 (C - w) - hi
//   hi - l (hi - lo) / (L - 1) + w                    all divisions rounded down
//
// and every layer keeps C if n < 2 (C - w).
//
// Differences:
// - Rounding makes the published steps between layers too small, never too large, so the layers together would keep up
//   to L (L - 1) / 2 slots more than L C. A pot has no such room: the excess is removed by one slot a layer, from the
//   lowest up, round and round. A layer keeps its pinned slots; the excess from that is removed likewise.
// - The paper compresses once, after the prompt: `capacity`. A full pot is compressed as well, to a C of all that the
//   incoming tokens leave free. There n is that of the fullest layer, and the exception for a small n does not apply:
//   n of twice C is more than a pot of equal layers holds. The first selection makes layers a little unequal, each
//   later one more so, until they have the published shape.
// - Where a model's layers differ in KV heads or head size, the layers of each shape are a pyramid of their own: a slot
//   of one shape is no room for one of another.
// - Keep-sets are SnapKV's, with the differences listed there.
#include <algorithm>

#include "policy/observation.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    WindowOption(8),
    KernelOption(7),
    PoolingOption("max"),
    kReduceOption,
    {.key = "beta",
     .fallback = 20,
     .min = 1,
     .max = 1000,
     .integral = true,
     .help = "steepness: the highest layer keeps 1/beta of the average",
     .tune = "5|10|20|40"},
    kCapacityOption,
    kPositionsOption,
    kStepOption,
};

// Slots that `layer` keeps by the published formula; `prompt`: with its exceptions for a prompt of few slots.
int32_t PublishedBudget(int32_t capacity, int32_t window, int32_t beta, int32_t layer, int32_t n_layers,
                        int32_t n_slots, bool prompt) {
  const int64_t selected = capacity - window;
  if (n_slots <= capacity && prompt) return n_slots;
  if (selected <= 0 || n_layers == 1 || (n_slots < 2 * selected && prompt)) return capacity;
  int64_t low = selected / beta, high = 2 * selected - low;
  if (high >= n_slots - window) {
    high = std::max<int64_t>(n_slots - window, selected);
    low = 2 * selected - high;
  }
  return static_cast<int32_t>(high - layer * ((high - low) / (n_layers - 1)) + window);
}

class PyramidKv : public Policy {
 public:
  PyramidKv(const Observation& observation, int32_t beta, int32_t step)
      : observation_(observation), beta_(beta), step_(step) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs = observation_.Needs();
    needs.spread = 2;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  int32_t TargetAfterPrompt(int32_t n_slots) const override { return observation_.TargetAfterPrompt(n_slots); }

  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    // The budget of a high layer: it may be only the window.
    SelectWindow(view, n_keep, n_keep + 1, keep);
  }

  void SelectAll(std::span<const SlotView> views, int32_t n_keep, std::span<KeepSet> keeps) override {
    PlanBudgets(views, n_keep);
    for (size_t i = 0; i < views.size(); ++i) {
      // A high layer may keep little more than the window: this is by design, not a sign of a small pot.
      SelectWindow(views[i], budgets_[static_cast<size_t>(views[i].layer)], n_keep, &keeps[i]);
    }
  }

 private:
  // n_even: the number each layer would keep if all kept the same, from which the window is derived.
  void SelectWindow(const SlotView& view, int32_t n_keep, int32_t n_even, KeepSet* keep) {
    picker_.Begin(view.slots, n_keep);
    const int32_t window = std::min(observation_.WindowOf(view, n_even, picker_.room()), n_keep);
    picker_.TakeNewest(window);
    const int32_t n_candidates = std::max(0, picker_.n_slots() - window);
    pooled_.resize(static_cast<size_t>(n_candidates));
    PoolCandidates(observation_, view, pooled_);
    picker_.TakeBest({pooled_, view.scores}, n_candidates, n_keep);
    picker_.Finish(keep);
  }

  // budgets_[layer]: slots that each KV head of a layer may keep.
  void PlanBudgets(std::span<const SlotView> views, int32_t n_keep) {
    budgets_.assign(static_cast<size_t>(views[0].n_layers), 0);
    least_.assign(static_cast<size_t>(views[0].n_layers), 1);
    for (const SlotView& view : views) {
      if (view.layer == view.pool && view.head <= 0) PlanPool(views, view.pool, n_keep);
    }
  }

  // Those of one pool: at most n_keep for each of its layers in total.
  void PlanPool(std::span<const SlotView> views, int32_t pool, int32_t n_keep) {
    layers_.clear();
    int32_t fullest = 0;
    size_t first = 0;
    int64_t n_slots = 0, n_views = 0;
    bool equal = true;
    for (const SlotView& view : views) {
      if (view.pool != pool) continue;
      if (layers_.empty()) first = view.slots.size();
      if (layers_.empty() || layers_.back() != view.layer) layers_.push_back(view.layer);
      ++n_views;
      const int32_t n = static_cast<int32_t>(view.slots.size());
      equal = equal && view.slots.size() == first;
      fullest = std::max(fullest, n);
      n_slots += n;
      int32_t n_pinned = 0;
      for (const SlotMeta& slot : view.slots) n_pinned += slot.pinned;
      int32_t& least = least_[static_cast<size_t>(view.layer)];
      least = std::max(least, n_pinned);
    }
    const int32_t window = n_keep > observation_.window ? observation_.window : n_keep / 2;
    // If everything fits on average, everything is kept, up to the limit of one head.
    if (n_slots <= n_views * n_keep) {
      for (const SlotView& view : views) {
        if (view.pool != pool) continue;
        int32_t& budget = budgets_[static_cast<size_t>(view.layer)];
        budget = std::max(budget, std::min(static_cast<int32_t>(view.slots.size()), 2 * n_keep));
      }
      return;
    }
    // Only the end of a prompt brings `capacity` as a budget.
    const bool prompt = equal && n_keep == observation_.capacity;
    const int32_t n_layers = static_cast<int32_t>(layers_.size());
    int64_t excess = -int64_t{n_layers} * n_keep;
    for (int32_t place = 0; place < n_layers; ++place) {
      const int32_t layer = layers_[static_cast<size_t>(place)];
      int32_t& budget = budgets_[static_cast<size_t>(layer)];
      budget = PublishedBudget(n_keep, window, beta_, place, n_layers, fullest, prompt);
      budget = std::max(budget, least_[static_cast<size_t>(layer)]);
      excess += budget;
    }
    for (bool gave = true; gave && excess > 0;) {
      gave = false;
      for (const int32_t layer : layers_) {
        if (excess == 0) break;
        if (budgets_[layer] <= least_[layer]) continue;
        --budgets_[layer];
        --excess;
        gave = true;
      }
    }
  }

  const Observation observation_;
  const int32_t beta_, step_;
  SlotPicker picker_;
  std::vector<float> pooled_;
  std::vector<int32_t> budgets_, least_;  // [n_layers]
  std::vector<int32_t> layers_;           // of the current pool
};

}  // namespace

extern const PolicyInfo kPyramidkv;
const PolicyInfo kPyramidkv = {
    .name = "pyramidkv",
    .summary = "SnapKV with more slots for lower layers than for higher ones",
    .paper =
        "Cai et al., PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling, arXiv "
        "2406.02069",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      WEIR_ASSIGN_OR_RETURN(const Observation observation, Observation::From(options));
      return std::unique_ptr<Policy>(new PyramidKv(observation, options.Int("beta"), options.Int("step")));
    },
};

}  // namespace weir
