// SPDX-License-Identifier: Apache-2.0
#include "kv/store.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "ops/kv_slots.h"

namespace weir {
namespace {

// Bytes of a slot's values beside its key.
int64_t ValueBytes(const PotShape& shape, int32_t layer) {
  return shape.values_in_keys ? 0 : SlotBytes(shape.v_type, shape.head_dim_of(layer));
}

}  // namespace

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

void PotShape::SetLayers(std::vector<LayerShape> all) {
  layers = std::move(all);
  n_layers = static_cast<int32_t>(layers.size());
  n_kv_heads = head_dim = 0;
  std::map<std::pair<int32_t, int32_t>, int32_t> pools;
  int32_t n_heads = 0;
  for (int32_t l = 0; l < n_layers; ++l) {
    LayerShape& layer = layers[l];
    layer.pool = pools.try_emplace({layer.n_kv_heads, layer.head_dim}, l).first->second;
    layer.first_head = n_heads;
    n_heads += layer.n_kv_heads;
    n_kv_heads = std::max(n_kv_heads, layer.n_kv_heads);
    head_dim = std::max(head_dim, layer.head_dim);
  }
  if (pools.size() < 2) layers.clear();
}

PotShape PotShape::window_pot() const {
  PotShape out;
  out.SetLayers(windows.layers);
  out.n_slots = windows.n_slots;
  out.k_type = k_type;
  out.v_type = v_type;
  out.values_in_keys = values_in_keys;
  return out;
}

int32_t PotShape::layer_of(int32_t group) const {
  if (granularity == Granularity::kGlobal) return -1;
  if (granularity == Granularity::kPerLayer) return group;
  if (layers.empty()) return group / n_kv_heads;
  const auto after = std::upper_bound(layers.begin(), layers.end(), group,
                                      [](int32_t head, const LayerShape& layer) { return head < layer.first_head; });
  return static_cast<int32_t>(after - layers.begin()) - 1;
}

Status Pot::Check(const PotShape& shape) {
  if (shape.n_layers <= 0 || shape.n_kv_heads <= 0 || shape.head_dim <= 0) {
    return InvalidArgument("a pot needs layers, KV heads and a head size, got {} x {} x {}", shape.n_layers,
                           shape.n_kv_heads, shape.head_dim);
  }
  PotShape again = shape;
  if (!shape.layers.empty()) again.SetLayers(shape.layers);
  if (again.layers != shape.layers || again.n_layers != shape.n_layers || again.n_kv_heads != shape.n_kv_heads ||
      again.head_dim != shape.head_dim) {
    return Internal("a pot whose layers were not set by SetLayers()");
  }
  if (shape.n_slots <= 0) return InvalidArgument("a pot needs at least one slot, got {}", shape.n_slots);
  for (DType type : {shape.k_type, shape.v_type}) {
    if (!IsSlotType(type)) return InvalidArgument("a KV cache of type {} is not supported", InfoOf(type).name);
    for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
      const int32_t head_dim = shape.head_dim_of(layer);
      if (shape.n_kv_heads_of(layer) <= 0 || head_dim <= 0) {
        return InvalidArgument("layer {} of a pot has {} KV heads of size {}", layer, shape.n_kv_heads_of(layer),
                               head_dim);
      }
      if (head_dim % InfoOf(type).block_elements == 0) continue;
      return InvalidArgument("a {} KV cache needs a head size that is a multiple of {}, this model has {}",
                             InfoOf(type).name, InfoOf(type).block_elements, head_dim);
    }
  }
  if (shape.values_in_keys && shape.v_type != shape.k_type) {
    return InvalidArgument("values that are in the keys cannot have a type of their own");
  }
  if (shape.spread < 1 || (shape.spread > 1 && shape.granularity != Granularity::kPerHead)) {
    return InvalidArgument("heads can only share a pot's slots when each has a keep-set of its own");
  }
  if (shape.floats.has(SlotFloat::kScore) && shape.granularity == Granularity::kGlobal) {
    return InvalidArgument("attention statistics need a keep-set per layer or per head");
  }
  if (shape.windows.n_slots == 0) return Status();
  if (shape.windows.window < 1 || shape.windows.n_rows < shape.windows.window ||
      shape.windows.n_slots < shape.windows.n_rows || shape.windows.n_marks < 0) {
    return Internal("windows of {} in {} slots", shape.windows.window, shape.windows.n_slots);
  }
  return Check(shape.window_pot());
}

std::vector<Pot::Pool> Pot::PoolsOf(const PotShape& shape) {
  std::vector<Pool> out;
  int64_t first_slot = 0, k_bytes = 0, v_bytes = 0;
  for (int32_t first = 0; first < shape.n_layers; ++first) {
    if (shape.pool_of(first) != first) continue;
    Pool& pool = out.emplace_back();
    pool.first_slot = first_slot;
    pool.k_begin = k_bytes;
    pool.v_begin = v_bytes;
    pool.k_slot_bytes = SlotBytes(shape.k_type, shape.head_dim_of(first));
    pool.v_slot_bytes = ValueBytes(shape, first);
    for (int32_t layer = first; layer < shape.n_layers; ++layer) {
      for (int32_t head = 0; shape.pool_of(layer) == first && head < shape.n_kv_heads_of(layer); ++head) {
        pool.heads.push_back(shape.head_index(layer, head));
      }
    }
    const int64_t n_slots = std::ssize(pool.heads) * shape.n_slots;
    first_slot += n_slots;
    k_bytes += n_slots * pool.k_slot_bytes;
    v_bytes += n_slots * pool.v_slot_bytes;
  }
  return out;
}

int64_t Pot::KvBytes(const PotShape& s) {
  int64_t k_bytes = 0, v_bytes = 0;
  for (int32_t layer = 0; layer < s.n_layers; ++layer) {
    const int64_t slots = static_cast<int64_t>(s.n_kv_heads_of(layer)) * s.n_slots;
    k_bytes += slots * SlotBytes(s.k_type, s.head_dim_of(layer));
    v_bytes += slots * ValueBytes(s, layer);
  }
  return PageRound(k_bytes) + PageRound(v_bytes) + StateBytes(s) + WindowBytes(s);
}

int64_t Pot::MetaBytes(const PotShape& s) {
  const int64_t n = static_cast<int64_t>(s.n_groups()) * s.n_slots;
  const int64_t own =
      PageRound(n * static_cast<int64_t>(sizeof(SlotMeta))) + std::popcount(s.floats.bits()) * PageRound(n * 4);
  return s.windows.n_slots == 0 ? own : own + (1 + s.windows.n_marks) * MetaBytes(s.window_pot());
}

Result<std::unique_ptr<Pot>> Pot::Make(const PotShape& shape, Backend& backend, Ledger& ledger) {
  WEIR_RETURN_IF_ERROR(Check(shape));
  auto pot = std::make_unique<Pot>();
  pot->shape_ = shape;
  pot->backend_ = &backend;
  pot->pools_ = PoolsOf(shape);
  if (!shape.layers.empty()) {
    int32_t n_placed = 0;
    pot->place_.resize(static_cast<size_t>(shape.n_heads_total()));
    for (const Pool& pool : pot->pools_) {
      for (const int32_t head : pool.heads) pot->place_[static_cast<size_t>(head)] = n_placed++;
    }
    for (const LayerShape& layer : shape.layers) {
      // Pools are in the order of their first layers.
      int32_t idx = 0;
      for (int32_t first = 0; first < layer.pool; ++first) idx += shape.pool_of(first) == first;
      pot->pool_of_layer_.push_back(idx);
    }
  }
  const Pool& last = pot->pools_.back();
  const int64_t last_slots = std::ssize(last.heads) * shape.n_slots;
  WEIR_ASSIGN_OR_RETURN(
      pot->k_, backend.Allocate(ledger, MemTag::kKv, last.k_begin + last_slots * last.k_slot_bytes, Access::kDevice));
  WEIR_ASSIGN_OR_RETURN(
      pot->v_, backend.Allocate(ledger, MemTag::kKv, last.v_begin + last_slots * last.v_slot_bytes, Access::kDevice));
  const int64_t n = static_cast<int64_t>(shape.n_groups()) * shape.n_slots;
  WEIR_ASSIGN_OR_RETURN(pot->meta_,
                        HostBuffer::Allocate(ledger, MemTag::kMeta, n * static_cast<int64_t>(sizeof(SlotMeta))));
  for (const SlotFloat what : kSlotFloats) {
    if (!shape.floats.has(what)) continue;
    Buffer& floats = pot->floats_[static_cast<size_t>(what)];
    WEIR_ASSIGN_OR_RETURN(floats, backend.Allocate(ledger, MemTag::kMeta, n * 4, Access::kShared));
  }
  WEIR_ASSIGN_OR_RETURN(pot->state_, RecurrentState::Make(shape.state, backend, ledger));
  if (shape.windows.n_slots > 0) WEIR_RETURN_IF_ERROR(pot->MakeWindows(ledger));
  pot->used_.assign(static_cast<size_t>(shape.n_groups()), 0);
  pot->LayOutEvenly();
  return pot;
}

void Pot::LayOutEvenly() {
  if (shape_.spread == 1) return;
  begin_.resize(used_.size());
  room_.assign(used_.size(), shape_.n_slots);
  int64_t at = 0;
  for (const Pool& pool : pools_) {
    for (const int32_t head : pool.heads) {
      begin_[static_cast<size_t>(head)] = at;
      at += shape_.n_slots;
    }
  }
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
  if (windows_ != nullptr) WEIR_RETURN_IF_ERROR(AppendToWindows(tokens));
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
  if (windows_ != nullptr) windows_->DropLast(std::min(n, windows_->n_used()));
}

void Pot::Clear() {
  std::fill(used_.begin(), used_.end(), 0);
  LayOutEvenly();
  state_.Clear();
  ClearWindows();
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
    for (int32_t head = 0; head < shape_.n_kv_heads_of(layer); ++head) {
      if (shape_.group_of(layer, head) != group) continue;
      args.push_back({keys(layer, head), k_slot_bytes(layer), keep});
      if (!shape_.values_in_keys) args.push_back({values(layer, head), v_slot_bytes(layer), keep});
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
  for (const Pool& pool : pools_) Rebalance(pool);
}

void Pot::Rebalance(const Pool& pool) {
  int64_t n_used_total = 0;
  for (const int32_t head : pool.heads) n_used_total += used_[head];
  const int64_t n_heads = std::ssize(pool.heads);
  const int64_t spare = (n_heads * shape_.n_slots - n_used_total) / n_heads;
  const auto move = [&](int32_t head, int64_t to) {
    const int64_t from = begin_[head], n = used_[head];
    const auto shift = [&](uint8_t* slots, int64_t bytes) {
      backend_->Copy(slots + (to - pool.first_slot) * bytes, slots + (from - pool.first_slot) * bytes, n * bytes);
    };
    shift(k_.data() + pool.k_begin, pool.k_slot_bytes);
    if (!shape_.values_in_keys) shift(v_.data() + pool.v_begin, pool.v_slot_bytes);
    std::memmove(meta_.as<SlotMeta>() + to, meta_.as<SlotMeta>() + from, static_cast<size_t>(n) * sizeof(SlotMeta));
    ForFloats([&](float* floats) { std::memmove(floats + to, floats + from, static_cast<size_t>(n) * 4); });
    begin_[head] = to;
  };
  // Regions keep their order, so those that move left can go first, in order, and those that move right after them,
  // last one first: no region is overwritten before it has moved.
  int64_t at = pool.first_slot;
  for (const int32_t head : pool.heads) {
    room_[head] = std::min(used_[head] + spare, shape_.max_head_slots());
    if (at < begin_[head]) move(head, at);
    at += used_[head] + spare;
  }
  for (size_t i = pool.heads.size(); i-- > 0;) {
    const int32_t head = pool.heads[i];
    at -= used_[head] + spare;
    if (at > begin_[head]) move(head, at);
  }
}

}  // namespace weir
