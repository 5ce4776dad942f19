// SPDX-License-Identifier: Apache-2.0
// Raw storage of keys and values: the slot format, and the two operations that write slots.
//
// One KV head of one layer owns two arrays of slots (keys and values), each slot `SlotBytes(type, head_dim)` wide,
// slots contiguous: [n_slots, head_dim] in the slot type. kv/ manages which slots are in use and their positions; these
// operations see only raw pointers.
//
// Types below 8 bits hold the vector's Hadamard transform (ops/hadamard.h), taken after its rotation if it has one.
// Keys and values have a few elements that are much larger than the others; spread over a block they do not set its
// scale alone. Whatever reads such a slot inverts the transform, LoadSlot() included; sums of values are inverted once,
// as sums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

#include "ops/rope.h"
#include "quant/dtype.h"

namespace weir {

// The types of slots: F32 for parity tests. Those of blocks need a head_dim that is a multiple of their 32 elements.
inline constexpr DType kSlotTypes[] = {DType::kF32,  DType::kF16,  DType::kQ8_0, DType::kQ5_1,
                                       DType::kQ5_0, DType::kQ4_1, DType::kQ4_0};
constexpr bool IsSlotType(DType type) { return std::ranges::find(kSlotTypes, type) != std::end(kSlotTypes); }
// Whether slots of this type hold transformed vectors.
constexpr bool IsTransformed(DType type) {
  return IsSlotType(type) && type != DType::kF32 && type != DType::kF16 && type != DType::kQ8_0;
}

inline int64_t SlotBytes(DType type, int64_t head_dim) { return RowBytes(type, head_dim); }

// Writes n_rows new vectors (F32) into slots [first_slot, first_slot + n_rows) of one head.
struct StoreSlotsArgs {
  const float* x = nullptr;  // [n_rows, head_dim], rows x_stride floats apart
  int64_t x_stride = 0;
  int64_t n_rows = 0, head_dim = 0;
  DType type = DType::kF16;
  uint8_t* slots = nullptr;  // base of the head's array
  int64_t first_slot = 0;
  // Non-null: rotate row i by (cos, sin)[i] times rope->magnitude before storing (keys whose position never changes).
  const RopeTable* rope = nullptr;
  const float* cos = nullptr;  // [n_rows, n_rot/2]
  const float* sin = nullptr;
};

// Moves the kept slots of one head to the front, in place: slot j of the result is slot keep[j] of the old array.
// REQUIRES: keep strictly ascending.
struct CompactSlotsArgs {
  uint8_t* slots = nullptr;
  int64_t slot_bytes = 0;
  std::span<const int32_t> keep;
};

namespace ref {
void StoreSlots(const StoreSlotsArgs& args);
void CompactSlots(const CompactSlotsArgs& args);
// Decodes slot `slot` of an array to F32 (tests, snapshots, policies that read vectors).
void LoadSlot(DType type, const uint8_t* slots, int64_t slot, int64_t head_dim, float* out);
}  // namespace ref
}  // namespace weir
