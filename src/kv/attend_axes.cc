// SPDX-License-Identifier: Apache-2.0
// Attention for positions with three axes (kv/axes.h).
#include <algorithm>

#include "kv/attend.h"
#include "ops/kv_slots.h"

namespace weir {
namespace {

// Slots of a head that are decoded at once before their rotation.
constexpr int64_t kDecodeRows = 64;

// For positions with three axes: a group's coordinates and scratch to compute them, their angles, its rotated keys.
struct AxesMemory {
  int64_t coordinates = 0, angles = 0, rotated = 0, decoded = 0;
  int64_t total() const { return PageRound(coordinates) + PageRound(angles) + PageRound(rotated) + PageRound(decoded); }
};

AxesMemory MemoryOf(const AttentionLayout& layout, int64_t max_rows, int64_t max_slots) {
  if (!layout.has_axes()) return {};
  const int64_t dim = layout.head_dim, n_heads = layout.n_kv_heads;
  return {(kAxes + 1) * std::max(max_rows, max_slots) * 4, max_slots * layout.rope.n_rot * 4,
          n_heads * max_slots * dim * 4, n_heads * kDecodeRows * dim * 4};
}

}  // namespace

int64_t Attender::AxesBytes(const AttentionLayout& layout, int64_t max_rows, int64_t max_slots) {
  return MemoryOf(layout, max_rows, max_slots).total();
}

Status Attender::MakeAxes(Ledger& ledger) {
  if (!layout_.has_axes()) return Status();
  if (!backend_->on_host()) {
    return Unsupported("positions on three axes are not computed on {}; run this model on the CPU", backend_->name());
  }
  const int64_t n_pairs = layout_.axis_pairs.total();
  if (layout_.has_windows() || !layout_.layers.empty() || !layout_.plain_layers.empty() ||
      n_pairs != layout_.rope.n_rot / 2) {
    return InvalidArgument("positions on three axes with sliding windows, layers that differ, or {} pairs of {}",
                           n_pairs, layout_.rope.n_rot / 2);
  }
  const AxesMemory axes = MemoryOf(layout_, max_rows_, max_slots_);
  const auto allocate = [&ledger](int64_t bytes) { return HostBuffer::Allocate(ledger, MemTag::kWorkspace, bytes); };
  WEIR_ASSIGN_OR_RETURN(axes_, allocate(axes.coordinates));
  WEIR_ASSIGN_OR_RETURN(axis_angles_, allocate(axes.angles));
  WEIR_ASSIGN_OR_RETURN(rotated_, allocate(axes.rotated));
  WEIR_ASSIGN_OR_RETURN(decoded_, allocate(axes.decoded));
  return Status();
}

void Attender::RotateKeys(const BatchSegment& segment, size_t at, int32_t n_heads, int64_t n_slots) {
  const DType type = segment.pot->shape().k_type;
  const int64_t half = layout_.rope.n_rot / 2, dim = layout_.head_dim, slot_bytes = SlotBytes(type, dim);
  const float* const cos = axis_angles_.as<float>();
  const float* const sin = cos + max_slots_ * half;
  // Keys in F32 are read in place.
  const int64_t step = type == DType::kF32 ? n_slots : kDecodeRows;
  for (int64_t first = 0; first < n_slots; first += step) {
    const int64_t n = std::min(step, n_slots - first);
    stores_.clear();
    for (int32_t h = 0; h < n_heads; ++h) {
      const uint8_t* keys = k_ptrs_[at + h] + first * slot_bytes;
      float* const decoded = decoded_.as<float>() + h * kDecodeRows * dim;
      for (int64_t i = 0; type != DType::kF32 && i < n; ++i) ref::LoadSlot(type, keys, i, dim, decoded + i * dim);
      StoreSlotsArgs store;
      store.x = type == DType::kF32 ? reinterpret_cast<const float*>(keys) : decoded;
      store.x_stride = store.head_dim = dim;
      store.n_rows = n;
      store.type = DType::kF32;
      store.slots = rotated_.data() + h * max_slots_ * dim * 4;
      store.first_slot = first;
      store.rope = &ropes_[0];
      store.cos = cos + first * half;
      store.sin = sin + first * half;
      stores_.push_back(store);
    }
    backend_->StoreSlots(stores_);
  }
  for (int32_t h = 0; h < n_heads; ++h) k_ptrs_[at + h] = rotated_.data() + h * max_slots_ * dim * 4;
}

void Attender::RunAlongAxes(int32_t layer, const AttentionArgs& args) {
  const int64_t half = layout_.rope.n_rot / 2, dim = layout_.head_dim;
  float* const cos = angles_.as<float>();
  float* const sin = cos + max_rows_ * half;
  float* const slot_cos = axis_angles_.as<float>();
  int32_t* const pos = axes_.as<int32_t>();
  for (size_t i = 0; i < segments_.size(); ++i) {
    const BatchSegment& segment = segments_[i];
    const PotShape& shape = segment.pot->shape();
    const int32_t step = shape.granularity == Granularity::kPerHead ? 1 : layout_.n_kv_heads;  // heads of a group
    for (int32_t head = 0; head < layout_.n_kv_heads; head += step) {
      const std::span<const SlotMeta> slots = segment.pot->meta(shape.group_of(layer, head));
      const int64_t n = std::ssize(slots), first = segment.first_row;
      HeldPositions(slots, pos + kAxes * n, pos, n);
      AxisAnglesByTable(ropes_[0], layout_.axis_pairs, pos, n, n, slot_cos, slot_cos + max_slots_ * half);
      AxisAnglesByTable(ropes_[0], layout_.axis_pairs, pos + n - segment.n_rows, n, segment.n_rows, cos + first * half,
                        sin + first * half);
      RotateKeys(segment, i * static_cast<size_t>(layout_.n_kv_heads) + static_cast<size_t>(head), step, n);

      AttentionSegment view = views_[i];
      view.k += head;
      view.v += head;
      view.n_slots += head;
      if (view.selected != nullptr) {
        view.selected += head;
        view.n_selected += head;
      }
      AttentionArgs part = args;
      const int64_t per_head = layout_.n_heads / layout_.n_kv_heads;
      part.n_kv_heads = step;
      part.n_heads = step * per_head;
      part.q += head * per_head * dim;
      part.out += head * per_head * dim;
      if (part.sinks != nullptr) part.sinks += head * per_head;
      part.k_type = DType::kF32;
      part.keys_rotated = true;
      part.row_cos = cos;
      part.row_sin = sin;
      part.segments = {&view, 1};
      if (segment.evidence == nullptr) {
        backend_->Attention(part);
        if (segment.watch != nullptr) Watch(layer, segment, view, part);
        continue;
      }
      score_ptrs_.clear();
      for (int32_t h = 0; h < step; ++h) {
        score_ptrs_.push_back(segment.pot->scores(shape.group_of(layer, head + h)).data());
      }
      const ColumnScoresArgs scores = ScoresOf(layer, part, segment, &view, score_ptrs_.data(), head * per_head);
      backend_->AttentionWithScores(part, {&scores, 1});
      if (segment.evidence->latest != nullptr) SplitByModality(layer, segment, scores);
      if (segment.watch != nullptr) Watch(layer, segment, view, part);
    }
  }
}

}  // namespace weir
