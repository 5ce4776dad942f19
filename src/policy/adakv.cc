// weir-plugin: policy
// SPDX-License-Identifier: Apache-2.0
// AdaKV: SnapKV's ranking with one budget for all heads of a layer, so that heads whose attention is spread keep more.
// Paper: "Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for Efficient LLM Inference" (arXiv
// 2407.11550), section 3, algorithms 1 and 2 (Ada-SnapKV).
//
// The KV heads of a layer share n_heads * n_keep slots. Every head keeps its window, and the share `floor` of the rest
// of its own n_keep goes to the head's best candidates. The layer's remaining slots go to the best candidates of all
// heads.
//
// Heads of unequal length are stored as such: memory that one head does not use is available to the others.
//
// Differences (public implementations disagree in detail):
// - The guaranteed number is rounded down. Ranking across heads: pooled score, score before the pool, the token read
//   later (slots of different heads cannot be compared), the lower head.
// - Pinned slots are always kept. If they and the window exceed n_keep, the window shrinks.
// - When keep-sets are chosen, and the positions: as in policy/snapkv.cc.
#include <algorithm>
#include <cmath>

#include "policy/observation.h"
#include "policy/step.h"

namespace weir {
namespace {

constexpr PolicyOptionInfo kOptions[] = {
    WindowOption(32),
    KernelOption(7),
    PoolingOption("max"),
    kReduceOption,
    {.key = "floor",
     .fallback = 0.2,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of an equal budget that every head is guaranteed",
     .tune = "0|0.1|0.2|0.5"},
    kCapacityOption,
    kPositionsOption,
    kStepOption,
};

class AdaKv : public Policy {
 public:
  AdaKv(const Observation& observation, double floor, int32_t step)
      : observation_(observation), floor_(floor), step_(step) {}
  PolicyNeeds Needs() const override {
    PolicyNeeds needs = observation_.Needs();
    needs.spread = 0;
    return needs;
  }
  int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const override {
    return StepTarget(step_, n_slots, n_coming, 1);
  }
  int32_t TargetAfterPrompt(int32_t n_slots) const override { return observation_.TargetAfterPrompt(n_slots); }

  void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) override {
    SelectLayer({&view, 1}, n_keep, {keep, 1});
  }

  void SelectAll(std::span<const SlotView> views, int32_t n_keep, std::span<KeepSet> keeps) override {
    for (size_t begin = 0; begin < views.size();) {
      size_t end = begin + 1;
      while (end < views.size() && views[end].layer == views[begin].layer) ++end;
      SelectLayer(views.subspan(begin, end - begin), n_keep, keeps.subspan(begin, end - begin));
      begin = end;
    }
  }

 private:
  struct Candidate {
    int32_t head, slot;
  };

  void SelectLayer(std::span<const SlotView> views, int32_t n_keep, std::span<KeepSet> keeps) {
    first_.clear();
    size_t n_slots = 0;
    for (const SlotView& view : views) {
      first_.push_back(n_slots);
      n_slots += view.slots.size();
    }
    // The slots of a layer are bounded by the pot's share of it, those of one head hardly are: storage is allocated
    // once per layer, and never grows by doubling.
    pooled_.reserve(n_slots);
    pooled_.resize(n_slots);
    taken_.assign(n_slots, 0);
    candidates_.clear();
    candidates_.reserve(n_slots);
    int64_t room = std::ssize(views) * n_keep;
    if (static_cast<int64_t>(n_slots) <= room) {
      std::fill(taken_.begin(), taken_.end(), 1);
      room = 0;
    } else {
      for (size_t h = 0; h < views.size(); ++h) room -= TakeOwn(views[h], static_cast<int32_t>(h), n_keep);
    }
    const int64_t n_shared = std::clamp<int64_t>(room, 0, std::ssize(candidates_));
    if (n_shared < std::ssize(candidates_)) {
      std::nth_element(candidates_.begin(), candidates_.begin() + n_shared, candidates_.end(),
                       [&](const Candidate& a, const Candidate& b) { return Before(views, a, b); });
    }
    for (int64_t i = 0; i < n_shared; ++i) taken_[At(candidates_[i])] = 1;
    for (size_t h = 0; h < views.size(); ++h) {
      keeps[h].clear();
      for (int32_t slot = 0; slot < std::ssize(views[h].slots); ++slot) {
        if (taken_[At({static_cast<int32_t>(h), slot})] != 0) keeps[h].push_back(slot);
      }
    }
  }

  // Takes the slots that a head keeps regardless of the others and returns their number; its other candidates join the
  // layer's.
  int32_t TakeOwn(const SlotView& view, int32_t h, int32_t n_keep) {
    picker_.Begin(view.slots, n_keep);
    const int32_t wanted = observation_.WindowOf(view, n_keep, picker_.room());
    int32_t window = 0;
    while (window < std::min(wanted, picker_.n_slots()) &&
           (picker_.room() > 0 || picker_.taken(picker_.n_slots() - 1 - window))) {
      picker_.Take(picker_.n_slots() - 1 - window);
      ++window;
    }
    const int32_t n_candidates = picker_.n_slots() - window;
    const std::span<float> pooled = std::span(pooled_).subspan(At({h, 0}), static_cast<size_t>(n_candidates));
    PoolCandidates(observation_, view, pooled);
    const int32_t n_sure = static_cast<int32_t>(std::floor(floor_ * picker_.room()));
    picker_.TakeBest({pooled, view.scores}, n_candidates, n_sure);
    for (int32_t slot = 0; slot < picker_.n_slots(); ++slot) {
      if (picker_.taken(slot)) {
        taken_[At({h, slot})] = 1;
      } else if (slot < n_candidates) {
        candidates_.push_back({h, slot});
      }
    }
    return picker_.n_taken();
  }

  // Index of a slot in pooled_ and taken_.
  size_t At(const Candidate& c) const { return first_[static_cast<size_t>(c.head)] + static_cast<size_t>(c.slot); }

  bool Before(std::span<const SlotView> views, const Candidate& a, const Candidate& b) const {
    const SlotView &view_a = views[a.head], &view_b = views[b.head];
    const float pooled_a = SaneScore(pooled_[At(a)]), pooled_b = SaneScore(pooled_[At(b)]);
    if (pooled_a != pooled_b) return pooled_a > pooled_b;
    const float score_a = SaneScore(view_a.scores[a.slot]), score_b = SaneScore(view_b.scores[b.slot]);
    if (score_a != score_b) return score_a > score_b;
    const int64_t seq_a = view_a.slots[a.slot].seq, seq_b = view_b.slots[b.slot].seq;
    return seq_a != seq_b ? seq_a > seq_b : a.head < b.head;
  }

  const Observation observation_;
  const double floor_;
  const int32_t step_;
  SlotPicker picker_;          // of all heads in order
  std::vector<size_t> first_;  // [heads of a layer]: the head's first slot in what follows
  std::vector<float> pooled_;
  std::vector<uint8_t> taken_;
  std::vector<Candidate> candidates_;
};

}  // namespace

extern const PolicyInfo kAdakv;
const PolicyInfo kAdakv = {
    .name = "adakv",
    .summary = "SnapKV with one budget shared by all heads of a layer",
    .paper =
        "Feng et al., Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for "
        "Efficient LLM Inference, arXiv 2407.11550",
    .options = kOptions,
    .make = [](const PolicyOptions& options) -> Result<std::unique_ptr<Policy>> {
      WEIR_ASSIGN_OR_RETURN(const Observation observation, Observation::From(options));
      return std::unique_ptr<Policy>(new AdaKv(observation, options.Number("floor"), options.Int("step")));
    },
};

}  // namespace weir
