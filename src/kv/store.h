// The pot: where keys, values and their metadata live.
//
// All slots of a session are reserved and touched when the pot is made; nothing grows afterwards. Layout, outermost
// first: [n_layers, n_kv_heads, n_slots, head_dim], keys and values apart, so that one head's slots are contiguous and
// compaction frees storage for real. Heads may hold different tokens and, after a ragged selection, different counts.
//
// A forward pass appends in two steps: BeginAppend() takes slots and metadata for the chunk in every group, then each
// layer's keys and values are stored by kv/attend.h. DropLast() undoes the latest appends (probe tokens).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "kv/types.h"

namespace weir {

class Pot {
 public:
  // kInvalidArgument for impossible shapes (Q8_0 with a head_dim that is no multiple of 32, zero slots),
  // kOverBudget with figures.
  static Result<std::unique_ptr<Pot>> Make(const PotShape& shape, Ledger& ledger);
  static Status Check(const PotShape& shape);
  // Bytes Make() reserves, page rounding included.
  static int64_t KvBytes(const PotShape& shape);
  static int64_t MetaBytes(const PotShape& shape);

  const PotShape& shape() const { return shape_; }

  // Slots in use. n_used() is the fullest group's.
  int32_t n_used(int32_t layer, int32_t head) const { return used_[shape_.group_of(layer, head)]; }
  int32_t n_used() const;
  int32_t n_free() const { return shape_.n_slots - n_used(); }
  // Metadata of a group's used slots, slot order (oldest first).
  std::span<const SlotMeta> meta(int32_t group) const {
    return {meta_.as<SlotMeta>() + static_cast<int64_t>(group) * shape_.n_slots, static_cast<size_t>(used_[group])};
  }

  // Takes tokens.size() slots at the end of every group. kOverBudget when a group lacks room.
  Status BeginAppend(std::span<const SlotMeta> tokens);
  // Gives back the last n slots of every group. REQUIRES: n <= n_used of every group.
  void DropLast(int32_t n);
  // Empties every group.
  void Clear();

  // Keeps exactly `keep` of a group: values move in storage, positions follow (kCache, kReset) or stay (kAbs).
  // kInvalidArgument when keep is not strictly ascending, leaves the range, or drops a pinned slot; nothing changes then.
  Status Compact(Backend& backend, int32_t group, const KeepSet& keep);

  // Base of one head's slots.
  uint8_t* keys(int32_t layer, int32_t head) const { return k_.data() + HeadIdx(layer, head) * shape_.n_slots * k_slot_bytes_; }
  uint8_t* values(int32_t layer, int32_t head) const {
    return v_.data() + HeadIdx(layer, head) * shape_.n_slots * v_slot_bytes_;
  }

 private:
  int64_t HeadIdx(int32_t layer, int32_t head) const { return static_cast<int64_t>(layer) * shape_.n_kv_heads + head; }

  PotShape shape_;
  int64_t k_slot_bytes_ = 0, v_slot_bytes_ = 0;
  HostBuffer k_, v_;
  HostBuffer meta_;                 // [n_groups, n_slots] SlotMeta
  std::vector<int32_t> used_;       // [n_groups]
};

}  // namespace weir
