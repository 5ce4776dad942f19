// SPDX-License-Identifier: Apache-2.0
// Shared by all rankings of slots: the tie rule, pooling over neighbours, and filling a budget exactly.
//
// Order of slots, everywhere: the higher score first; among equals the higher score before pooling, then the newer
// slot. No paper defines ties, and with pooled scores they are normal at the cut. A NaN score ranks as -infinity, so
// that a broken model cannot break the order.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "kv/types.h"

namespace weir {

// The value that a score ranks as.
inline float SaneScore(float score) { return score == score ? score : -std::numeric_limits<float>::infinity(); }

// The ranking keys, one entry per slot.
struct RankKeys {
  std::span<const float> first;
  std::span<const float> second;  // breaks ties, before the slot does; may be empty
};
// Whether slot a ranks before slot b.
inline bool RanksBefore(const RankKeys& keys, int32_t a, int32_t b) {
  const float first_a = SaneScore(keys.first[a]), first_b = SaneScore(keys.first[b]);
  if (first_a != first_b) return first_a > first_b;
  if (!keys.second.empty()) {
    const float second_a = SaneScore(keys.second[a]), second_b = SaneScore(keys.second[b]);
    if (second_a != second_b) return second_a > second_b;
  }
  return a > b;
}

// Seqs of the `count` visual slots that rank first, ascending; all of them if there are fewer.
std::vector<int64_t> BestVisual(std::span<const SlotMeta> slots, const RankKeys& keys, int32_t count);

enum class Pooling { kMax, kAvg };
// "max" is kMax, everything else kAvg: for options with only these two choices.
inline Pooling PoolingOf(std::string_view word) { return word == "max" ? Pooling::kMax : Pooling::kAvg; }

// out[i] = max or mean of scores[i - kernel/2 .. i + kernel/2], zeros beyond both ends; the mean divides by `kernel`
// there too. REQUIRES: kernel odd, out as long as scores and not overlapping it.
void Pool(std::span<const float> scores, int32_t kernel, Pooling pooling, float* out);

// floor(x + 0.5): rounds a share of a budget to a count.
int32_t RoundHalfUp(double x);

// Number of newest slots to keep, for a policy that protects `recent` of them, when n_unscored have no score yet (and
// would wrongly rank last). Slots without a score get at most half of `room`, the budget less the pinned slots: a long
// answer must not evict everything else.
int32_t ProtectedRecent(int32_t recent, int32_t n_unscored, int32_t room);

// Fills the budget of one group: pinned slots first, then what the policy takes, tier by tier, until exactly n_keep
// slots are taken. Taking a slot again costs nothing, so overlapping tiers waste no budget.
//
// Keeps its memory between selections (5 bytes per slot of the largest view); one per policy object.
class SlotPicker {
 public:
  // Takes the pinned slots of a group of slots.size() slots. REQUIRES: they fit n_keep.
  void Begin(std::span<const SlotMeta> slots, int32_t n_keep);

  int32_t n_slots() const { return static_cast<int32_t>(taken_.size()); }
  int32_t n_taken() const { return n_taken_; }
  int32_t room() const { return n_keep_ - n_taken_; }  // slots still to take; never negative
  bool taken(int32_t slot) const { return taken_[static_cast<size_t>(slot)] != 0; }

  // Takes one slot even without room: for policies whose groups share a budget.
  void Take(int32_t slot);
  // The first or last `count` slots of the group, outermost first, as long as there is room.
  void TakeOldest(int32_t count);
  void TakeNewest(int32_t count);
  // The last `count` slots of text, newest first, as long as there is room. REQUIRES: the slots of Begin().
  void TakeNewestText(std::span<const SlotMeta> slots, int32_t count);
  // The best `count` slots among those of [0, end) that are not taken, as long as there is room.
  void TakeBest(const RankKeys& keys, int32_t end, int32_t count);
  // Those of the best `count` slots of [0, end) that are not taken yet, best first, as long as there is room.
  void TakeTop(const RankKeys& keys, int32_t end, int32_t count);

  // The taken slots, ascending.
  void Collect(KeepSet* keep) const;
  // Takes the newest slots while there is room, then returns Collect(): exactly min(n_keep, slots) are kept.
  void Finish(KeepSet* keep);

 private:
  void TakeBestOf(const RankKeys& keys, int32_t count);  // of order_

  int32_t n_keep_ = 0, n_taken_ = 0;
  std::vector<uint8_t> taken_;
  std::vector<int32_t> order_;
};

}  // namespace weir
