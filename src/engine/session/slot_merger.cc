// SPDX-License-Identifier: Apache-2.0
#include "engine/session/slot_merger.h"

#include <algorithm>
#include <cmath>

#include "quant/format.h"

namespace weir {
namespace {

float Dot(const float* a, const float* b, int32_t n) {
  float sum = 0;
  for (int32_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void MakeUnit(float* x, int32_t n) {
  const float length = std::sqrt(Dot(x, x, n));
  if (length == 0) return;
  for (int32_t i = 0; i < n; ++i) x[i] /= length;
}

}  // namespace

void SlotMerger::LayOut(const PotShape& pot, Merge how, BufferSpace* space) {
  how_ = how;
  if (how == Merge::kNone) return;
  int64_t n_dim = 0;
  for (int32_t layer = 0; layer < pot.n_layers; ++layer) n_dim = std::max<int64_t>(n_dim, pot.head_dim_of(layer));
  const int64_t n = pot.max_head_slots();
  units_ = space->Floats(MemTag::kWorkspace, n * n_dim);
  sum_ = space->Floats(MemTag::kWorkspace, n_dim);
  row_ = space->Floats(MemTag::kWorkspace, n_dim);
  nearness_ = space->Floats(MemTag::kWorkspace, n);
  nearest_ = reinterpret_cast<int32_t*>(space->Floats(MemTag::kWorkspace, n));
}

void SlotMerger::Run(const Pot& pot, int32_t layer, int32_t head, const KeepSet& keep) {
  const PotShape& shape = pot.shape();
  const std::span<const SlotMeta> slots = pot.meta(shape.group_of(layer, head));
  const auto n = static_cast<int32_t>(slots.size());
  if (std::ssize(keep) == n) return;
  const int32_t n_dim = shape.head_dim_of(layer);
  uint8_t* const keys = pot.keys(layer, head);
  for (int32_t s = 0; s < n; ++s) {
    DecodeRow(shape.k_type, keys + s * pot.k_slot_bytes(layer), n_dim, units_ + int64_t{s} * n_dim);
    MakeUnit(units_ + int64_t{s} * n_dim, n_dim);
  }
  for (int32_t s = 0, at = 0; s < n; ++s) {
    nearest_[s] = -1;
    if (at < std::ssize(keep) && keep[at] == s) {
      ++at;
      continue;
    }
    nearness_[s] = -2;
    for (const int32_t kept : keep) {
      if (slots[kept].pinned) continue;
      const float near = Dot(units_ + int64_t{s} * n_dim, units_ + int64_t{kept} * n_dim, n_dim);
      if (near <= nearness_[s]) continue;
      nearness_[s] = near;
      nearest_[s] = kept;
    }
  }
  for (const int32_t kept : keep) {
    if (std::find(nearest_, nearest_ + n, kept) == nearest_ + n) continue;
    Add(keys, pot.k_slot_bytes(layer), shape.k_type, n_dim, kept, n);
    if (!shape.values_in_keys) Add(pot.values(layer, head), pot.v_slot_bytes(layer), shape.v_type, n_dim, kept, n);
  }
}

void SlotMerger::Add(uint8_t* slots, int64_t slot_bytes, DType type, int32_t n_dim, int32_t slot, int32_t n_slots) {
  uint8_t* const kept = slots + slot * slot_bytes;
  DecodeRow(type, kept, n_dim, sum_);
  float n_received = 0;
  for (int32_t s = 0; s < n_slots; ++s) n_received += nearest_[s] == slot ? 1.0f : 0.0f;
  if (how_ == Merge::kPivot) {
    for (int32_t i = 0; i < n_dim; ++i) sum_[i] *= 1 + n_received / 2;
  }
  for (int32_t s = 0; s < n_slots; ++s) {
    if (nearest_[s] != slot) continue;
    DecodeRow(type, slots + s * slot_bytes, n_dim, row_);
    const float weight = how_ == Merge::kPivot ? 0.5f : how_ == Merge::kWeighted ? nearness_[s] : 1.0f;
    for (int32_t i = 0; i < n_dim; ++i) sum_[i] += weight * row_[i];
  }
  for (int32_t i = 0; i < n_dim; ++i) sum_[i] /= 1 + n_received;
  EncodeRow(type, sum_, n_dim, kept);
}

}  // namespace weir
