// SPDX-License-Identifier: Apache-2.0
#include "kv/store.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ops/kv_slots.h"

namespace weir {

const char* PositionsName(Positions positions) {
  switch (positions) {
    case Positions::kAbs:
      return "abs";
    case Positions::kCache:
      return "cache";
    case Positions::kReset:
      return "reset";
  }
  return "?";
}

const char* ModalityName(Modality modality) {
  switch (modality) {
    case Modality::kText:
      return "text";
    case Modality::kImage:
      return "image";
    case Modality::kVideo:
      return "video";
  }
  return "?";
}

Status Pot::Check(const PotShape& shape) {
  if (shape.n_layers <= 0 || shape.n_kv_heads <= 0 || shape.head_dim <= 0) {
    return InvalidArgument("a pot needs layers, KV heads and a head size, got {} x {} x {}", shape.n_layers,
                           shape.n_kv_heads, shape.head_dim);
  }
  if (shape.n_slots <= 0) return InvalidArgument("a pot needs at least one slot, got {}", shape.n_slots);
  for (DType type : {shape.k_type, shape.v_type}) {
    if (type != DType::kF32 && type != DType::kF16 && type != DType::kQ8_0) {
      return InvalidArgument("a KV cache of type {} is not supported; use f32, f16 or q8_0", InfoOf(type).name);
    }
    if (shape.head_dim % InfoOf(type).block_elements != 0) {
      return InvalidArgument("a {} KV cache needs a head size that is a multiple of {}, this model has {}",
                             InfoOf(type).name, InfoOf(type).block_elements, shape.head_dim);
    }
  }
  if (shape.spread < 1 || (shape.spread > 1 && shape.granularity != Granularity::kPerHead)) {
    return InvalidArgument("heads can only share a pot's slots when each has a keep-set of its own");
  }
  if (shape.floats.has(SlotFloat::kScore) && shape.granularity == Granularity::kGlobal) {
    return InvalidArgument("attention statistics need a keep-set per layer or per head");
  }
  return Status();
}

int64_t Pot::KvBytes(const PotShape& s) {
  const int64_t slots = static_cast<int64_t>(s.n_layers) * s.n_kv_heads * s.n_slots;
  return PageRound(slots * SlotBytes(s.k_type, s.head_dim)) + PageRound(slots * SlotBytes(s.v_type, s.head_dim)) +
         StateBytes(s);
}

int64_t Pot::MetaBytes(const PotShape& s) {
  const int64_t n = static_cast<int64_t>(s.n_groups()) * s.n_slots;
  return PageRound(n * static_cast<int64_t>(sizeof(SlotMeta))) + std::popcount(s.floats.bits()) * PageRound(n * 4);
}

Result<std::unique_ptr<Pot>> Pot::Make(const PotShape& shape, Backend& backend, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(Check(shape));
  auto pot = std::make_unique<Pot>();
  pot->shape_ = shape;
  pot->backend_ = &backend;
  pot->k_slot_bytes_ = SlotBytes(shape.k_type, shape.head_dim);
  pot->v_slot_bytes_ = SlotBytes(shape.v_type, shape.head_dim);
  const int64_t slots = static_cast<int64_t>(shape.n_layers) * shape.n_kv_heads * shape.n_slots;
  WEIR_ASSIGN_OR_RETURN(pot->k_, backend.Allocate(ledger, MemTag::kKv, slots * pot->k_slot_bytes_, Access::kDevice));
  WEIR_ASSIGN_OR_RETURN(pot->v_, backend.Allocate(ledger, MemTag::kKv, slots * pot->v_slot_bytes_, Access::kDevice));
  const int64_t n = static_cast<int64_t>(shape.n_groups()) * shape.n_slots;
  WEIR_ASSIGN_OR_RETURN(pot->meta_,
                        HostBuffer::Allocate(ledger, MemTag::kMeta, n * static_cast<int64_t>(sizeof(SlotMeta))));
  for (const SlotFloat what : kSlotFloats) {
    if (!shape.floats.has(what)) continue;
    Buffer& floats = pot->floats_[static_cast<size_t>(what)];
    WEIR_ASSIGN_OR_RETURN(floats, backend.Allocate(ledger, MemTag::kMeta, n * 4, Access::kShared));
  }
  WEIR_ASSIGN_OR_RETURN(pot->state_, RecurrentState::Make(shape.state, backend, ledger));
  pot->used_.assign(static_cast<size_t>(shape.n_groups()), 0);
  pot->LayOutEvenly();
  return pot;
}

void Pot::LayOutEvenly() {
  if (shape_.spread == 1) return;
  begin_.resize(used_.size());
  room_.assign(used_.size(), shape_.n_slots);
  for (size_t group = 0; group < used_.size(); ++group) begin_[group] = static_cast<int64_t>(group) * shape_.n_slots;
}

int32_t Pot::n_used() const { return *std::max_element(used_.begin(), used_.end()); }

int32_t Pot::n_free() const {
  if (room_.empty()) return shape_.n_slots - n_used();
  int64_t least = shape_.n_slots;
  for (size_t group = 0; group < used_.size(); ++group) least = std::min(least, room_[group] - used_[group]);
  return static_cast<int32_t>(least);
}

Status Pot::BeginAppend(std::span<const SlotMeta> tokens) {
  if (static_cast<int64_t>(tokens.size()) > n_free()) {
    return OverBudget("the pot of {} slots has {} free, the chunk needs {}", shape_.n_slots, n_free(), tokens.size());
  }
  const size_t n = tokens.size();
  for (size_t group = 0; group < used_.size(); ++group) {
    const int64_t at = GroupBegin(static_cast<int32_t>(group)) + used_[group];
    std::copy(tokens.begin(), tokens.end(), meta_.as<SlotMeta>() + at);
    ForFloats([&](float* floats) { std::fill_n(floats + at, n, 0.0f); });
    used_[group] += static_cast<int32_t>(n);
  }
  return Status();
}

void Pot::DropLast(int32_t n) {
  for (int32_t& used : used_) used -= n;
}

void Pot::Clear() {
  std::fill(used_.begin(), used_.end(), 0);
  LayOutEvenly();
  state_.Clear();
}

void Pot::SetNewest(SlotFloat what, std::span<const float> values) {
  for (int32_t group = 0; group < shape_.n_groups(); ++group) {
    std::ranges::copy(values, floats(what, group).last(values.size()).begin());
  }
}

Status Pot::CheckKeep(int32_t group, const KeepSet& keep) const {
  const SlotMeta* meta = meta_.as<SlotMeta>() + GroupBegin(group);
  const int32_t used = used_[group];
  int32_t expected = 0;  // the lowest slot that the next kept one may have
  for (int32_t slot : keep) {
    if (slot < expected || slot >= used) {
      return InvalidArgument("keep-set of group {}: slot {} out of order or beyond the {} in use", group, slot, used);
    }
    for (int32_t s = expected; s < slot; ++s) {
      if (meta[s].pinned) return InvalidArgument("keep-set of group {} drops pinned slot {}", group, s);
    }
    expected = slot + 1;
  }
  for (int32_t s = expected; s < used; ++s) {
    if (meta[s].pinned) return InvalidArgument("keep-set of group {} drops pinned slot {}", group, s);
  }
  return Status();
}

Status Pot::Compact(int32_t group, const KeepSet& keep) {
  WEIR_RETURN_IF_ERROR(CheckKeep(group, keep));
  SlotMeta* meta = meta_.as<SlotMeta>() + GroupBegin(group);
  std::vector<CompactSlotsArgs> args;
  for (int32_t layer = 0; layer < shape_.n_layers; ++layer) {
    for (int32_t head = 0; head < shape_.n_kv_heads; ++head) {
      if (shape_.group_of(layer, head) != group) continue;
      args.push_back({keys(layer, head), k_slot_bytes_, keep});
      args.push_back({values(layer, head), v_slot_bytes_, keep});
    }
  }
  backend_->CompactSlots(args);
  for (size_t i = 0; i < keep.size(); ++i) meta[i] = meta[keep[i]];
  ForFloats([&](float* floats) {
    float* const own = floats + GroupBegin(group);
    for (size_t i = 0; i < keep.size(); ++i) own[i] = own[keep[i]];
  });
  used_[group] = static_cast<int32_t>(keep.size());
  return Status();
}

void Pot::Unpin(SeqRange seqs) {
  for (int32_t group = 0; group < shape_.n_groups(); ++group) {
    SlotMeta* const slots = meta_.as<SlotMeta>() + GroupBegin(group);
    for (int32_t slot = 0; slot < used_[static_cast<size_t>(group)]; ++slot) {
      if (slots[slot].seq >= seqs.begin && slots[slot].seq < seqs.end) slots[slot].pinned = false;
    }
  }
}

void Pot::Rebalance() {
  if (begin_.empty()) return;
  int64_t n_used_total = 0;
  for (int32_t used : used_) n_used_total += used;
  const int64_t n_heads = shape_.n_heads_total();
  const int64_t spare = (n_heads * shape_.n_slots - n_used_total) / n_heads;
  const auto move = [this](size_t head, int64_t to) {
    const int64_t from = begin_[head];
    const size_t n = static_cast<size_t>(used_[head]);
    backend_->Copy(k_.data() + to * k_slot_bytes_, k_.data() + from * k_slot_bytes_, used_[head] * k_slot_bytes_);
    backend_->Copy(v_.data() + to * v_slot_bytes_, v_.data() + from * v_slot_bytes_, used_[head] * v_slot_bytes_);
    std::memmove(meta_.as<SlotMeta>() + to, meta_.as<SlotMeta>() + from, n * sizeof(SlotMeta));
    ForFloats([&](float* floats) { std::memmove(floats + to, floats + from, n * 4); });
    begin_[head] = to;
  };
  // Regions keep their order, so those that move left can go first, in order, and those that move right after them,
  // last one first: no region is overwritten before it has moved.
  int64_t at = 0;
  for (size_t head = 0; head < used_.size(); ++head) {
    room_[head] = std::min(used_[head] + spare, shape_.max_head_slots());
    if (at < begin_[head]) move(head, at);
    at += used_[head] + spare;
  }
  for (size_t head = used_.size(); head-- > 0;) {
    at -= used_[head] + spare;
    if (at > begin_[head]) move(head, at);
  }
}

}  // namespace weir
