// SPDX-License-Identifier: Apache-2.0
#include "ops/kv_slots.h"

#include <algorithm>
#include <cstring>

#include "ops/hadamard.h"
#include "quant/format.h"

namespace weir::ref {
namespace {

// Element i of a vector after rotation by one row of angles: the arithmetic of RotateRows, one element at a time, so
// that a vector of any length is stored without a copy of it.
float Rotated(const RopeTable& rope, const float* cos, const float* sin, const float* x, int64_t i) {
  const int64_t n_pairs = rope.n_rot / 2;
  if (i >= 2 * n_pairs) return x[i];
  const int64_t pair = i < n_pairs ? i : i - n_pairs;
  const float c = cos[pair] * rope.magnitude;
  const float s = sin[pair] * rope.magnitude;
  return i < n_pairs ? x[pair] * c - x[pair + n_pairs] * s : x[pair + n_pairs] * c + x[pair] * s;
}

}  // namespace

void StoreSlots(const StoreSlotsArgs& args) {
  const bool transformed = IsTransformed(args.type);
  // Elements that are rotated, transformed and encoded together.
  const int64_t step = transformed ? HadamardBlock(args.head_dim) : InfoOf(args.type).block_elements;
  const int64_t slot_bytes = SlotBytes(args.type, args.head_dim);
  const int64_t n_pairs = args.rope != nullptr ? args.rope->n_rot / 2 : 0;
  float block[std::max<int64_t>(kMaxBlockElements, kMaxHadamard)];
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    uint8_t* slot = args.slots + (args.first_slot + row) * slot_bytes;
    for (int64_t first = 0; first < args.head_dim; first += step, slot += RowBytes(args.type, step)) {
      for (int64_t i = 0; i < step; ++i) {
        block[i] = n_pairs > 0 ? Rotated(*args.rope, args.cos + row * n_pairs, args.sin + row * n_pairs, x, first + i)
                               : x[first + i];
      }
      if (transformed) Hadamard(block, step);
      EncodeRow(args.type, block, step, slot);
    }
  }
}

void CompactSlots(const CompactSlotsArgs& args) {
  for (size_t j = 0; j < args.keep.size(); ++j) {
    uint8_t* to = args.slots + static_cast<int64_t>(j) * args.slot_bytes;
    const uint8_t* from = args.slots + static_cast<int64_t>(args.keep[j]) * args.slot_bytes;
    if (to != from) std::memcpy(to, from, args.slot_bytes);  // ascending, so slots never overlap one another
  }
}

void LoadSlot(DType type, const uint8_t* slots, int64_t slot, int64_t head_dim, float* out) {
  DecodeRow(type, slots + slot * SlotBytes(type, head_dim), head_dim, out);
  if (IsTransformed(type)) Hadamard(out, head_dim);
}

}  // namespace weir::ref
