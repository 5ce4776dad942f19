// SPDX-License-Identifier: Apache-2.0
// Merging (PolicyNeeds::merge): what a selection drops goes into the kept slot of the nearest key instead of being
// forgotten. LOOK-M (2406.18139), section 3.3.
//
// Of the dropped slots e whose key has its largest cosine with that of the kept slot j, s_e of it, n of them:
//
//   average   x_j' = (x_j + sum x_e) / (1 + n)               for keys and for values
//   pivot     x_j' = (x_j + sum (x_j + x_e) / 2) / (1 + n)
//   weighted  x_j' = (x_j + sum s_e x_e) / (1 + n)
//
// Pinned slots, and with them excerpts, receive nothing. Among equals the older slot receives. Positions do not matter:
// keys are compared and summed as they are stored, un-rotated. Nothing counts what a slot has received before: in a
// stream that selects again and again the newest weighs most.
#pragma once

#include <cstdint>

#include "engine/buffer_space.h"
#include "kv/store.h"
#include "policy/policy.h"

namespace weir {

class SlotMerger {
 public:
  // Memory of one head's keys. Nothing where `how` is kNone.
  void LayOut(const PotShape& pot, Merge how, BufferSpace* space);

  // Merges, in one head, what is not in `keep` into what is. Call it before the pot is compacted. REQUIRES: the pot is
  // in the host's memory; `keep` is valid.
  void Run(const Pot& pot, int32_t layer, int32_t head, const KeepSet& keep);

 private:
  // Adds to `slot` what it receives, in keys or in values.
  void Add(uint8_t* slots, int64_t slot_bytes, DType type, int32_t n_dim, int32_t slot, int32_t n_slots);

  Merge how_ = Merge::kNone;
  float* units_ = nullptr;                 // [slots, head_dim]: keys of length 1
  float *sum_ = nullptr, *row_ = nullptr;  // [head_dim]
  float* nearness_ = nullptr;              // [slots], of dropped ones
  int32_t* nearest_ = nullptr;  // [slots]: the slot that receives a dropped one; -1: kept, or nothing receives it
};

}  // namespace weir
