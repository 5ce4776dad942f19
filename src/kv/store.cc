#include "kv/store.h"

#include <algorithm>

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

Status Pot::Check(const PotShape& shape) {
  if (shape.n_layers <= 0 || shape.n_kv_heads <= 0 || shape.head_dim <= 0) {
    return InvalidArgument("a pot needs layers, KV heads and a head size, got %d x %d x %d", shape.n_layers,
                           shape.n_kv_heads, shape.head_dim);
  }
  if (shape.n_slots <= 0) return InvalidArgument("a pot needs at least one slot, got %d", shape.n_slots);
  for (DType type : {shape.k_type, shape.v_type}) {
    if (type != DType::kF32 && type != DType::kF16 && type != DType::kQ8_0) {
      return InvalidArgument("a KV cache of type %s is not supported; use f32, f16 or q8_0", InfoOf(type).name);
    }
    if (shape.head_dim % InfoOf(type).block_elements != 0) {
      return InvalidArgument("a %s KV cache needs a head size that is a multiple of %d, this model has %d",
                             InfoOf(type).name, InfoOf(type).block_elements, shape.head_dim);
    }
  }
  return Status();
}

int64_t Pot::KvBytes(const PotShape& s) {
  const int64_t slots = static_cast<int64_t>(s.n_layers) * s.n_kv_heads * s.n_slots;
  return PageRound(slots * SlotBytes(s.k_type, s.head_dim)) + PageRound(slots * SlotBytes(s.v_type, s.head_dim));
}

int64_t Pot::MetaBytes(const PotShape& s) {
  return PageRound(static_cast<int64_t>(s.n_groups()) * s.n_slots * static_cast<int64_t>(sizeof(SlotMeta)));
}

Result<std::unique_ptr<Pot>> Pot::Make(const PotShape& shape, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(Check(shape));
  auto pot = std::make_unique<Pot>();
  pot->shape_ = shape;
  pot->k_slot_bytes_ = SlotBytes(shape.k_type, shape.head_dim);
  pot->v_slot_bytes_ = SlotBytes(shape.v_type, shape.head_dim);
  const int64_t slots = static_cast<int64_t>(shape.n_layers) * shape.n_kv_heads * shape.n_slots;
  WEIR_ASSIGN_OR_RETURN(pot->k_, HostBuffer::Allocate(ledger, MemTag::kKv, slots * pot->k_slot_bytes_));
  WEIR_ASSIGN_OR_RETURN(pot->v_, HostBuffer::Allocate(ledger, MemTag::kKv, slots * pot->v_slot_bytes_));
  WEIR_ASSIGN_OR_RETURN(pot->meta_, HostBuffer::Allocate(ledger, MemTag::kMeta, MetaBytes(shape)));
  pot->used_.assign(static_cast<size_t>(shape.n_groups()), 0);
  return pot;
}

int32_t Pot::n_used() const { return *std::max_element(used_.begin(), used_.end()); }

Status Pot::BeginAppend(std::span<const SlotMeta> tokens) {
  if (static_cast<int64_t>(tokens.size()) > n_free()) {
    return OverBudget("the pot of %d slots has %d free, the chunk needs %zu", shape_.n_slots, n_free(), tokens.size());
  }
  for (size_t group = 0; group < used_.size(); ++group) {
    SlotMeta* base = meta_.as<SlotMeta>() + static_cast<int64_t>(group) * shape_.n_slots;
    std::copy(tokens.begin(), tokens.end(), base + used_[group]);
    used_[group] += static_cast<int32_t>(tokens.size());
  }
  return Status();
}

void Pot::DropLast(int32_t n) {
  for (int32_t& used : used_) used -= n;
}

void Pot::Clear() { std::fill(used_.begin(), used_.end(), 0); }

Status Pot::Compact(Backend& backend, int32_t group, const KeepSet& keep) {
  SlotMeta* meta = meta_.as<SlotMeta>() + static_cast<int64_t>(group) * shape_.n_slots;
  const int32_t used = used_[group];
  int32_t expected = 0;  // the lowest slot that the next kept one may be
  for (int32_t slot : keep) {
    if (slot < expected || slot >= used) {
      return InvalidArgument("keep-set of group %d: slot %d out of order or beyond the %d in use", group, slot, used);
    }
    for (int32_t s = expected; s < slot; ++s) {
      if (meta[s].pinned) return InvalidArgument("keep-set of group %d drops pinned slot %d", group, s);
    }
    expected = slot + 1;
  }
  for (int32_t s = expected; s < used; ++s) {
    if (meta[s].pinned) return InvalidArgument("keep-set of group %d drops pinned slot %d", group, s);
  }

  std::vector<CompactSlotsArgs> args;
  for (int32_t layer = 0; layer < shape_.n_layers; ++layer) {
    for (int32_t head = 0; head < shape_.n_kv_heads; ++head) {
      if (shape_.group_of(layer, head) != group) continue;
      args.push_back({keys(layer, head), k_slot_bytes_, keep});
      args.push_back({values(layer, head), v_slot_bytes_, keep});
    }
  }
  backend.CompactSlots(args);
  for (size_t i = 0; i < keep.size(); ++i) meta[i] = meta[keep[i]];
  used_[group] = static_cast<int32_t>(keep.size());
  return Status();
}

}  // namespace weir
