// SPDX-License-Identifier: Apache-2.0
// The pot: where keys, values and their metadata live.
//
// All slots of a session are reserved and touched when the pot is made; nothing grows afterwards. Layout, outermost
// first: [n_layers, n_kv_heads, n_slots, head_dim], keys and values in separate arrays, so that one head's slots are
// contiguous and compaction frees storage for real. Layers of different shapes lie in one such array for each shape (a
// pool), one after another. Heads may hold different tokens and, after a ragged selection, different counts.
//
// Heads that share storage (PotShape::spread > 1) own a region of their pool each; regions are laid out again after
// every selection, so that storage freed by one head can be used by another. Otherwise every head owns n_slots.
//
// A forward pass appends in two steps: BeginAppend() takes slots and metadata for the chunk in every group, then each
// layer's keys and values are stored by kv/attend.h. DropLast() undoes the latest appends (probe tokens).
//
// Beside its slots a pot holds the state of layers that have none (kv/recurrent_state.h). Selections do not change it:
// such a layer has read everything that was ever read.
//
// Layers with a sliding window may hold slots of their own (PotShape::windows): always the newest rows of the stream,
// so that distances between them are those of the stream, whatever the policy keeps for the other layers. Selections do
// not change them, pins have no meaning there, and rows that were forgotten come back only from a copy
// (docs/decisions/0026-windows-hold-the-newest.md).
#pragma once

#include <array>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/bytes.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "kv/marks.h"
#include "kv/recurrent_state.h"
#include "kv/types.h"

namespace weir {

class Pot {
 public:
  // kInvalidArgument for impossible shapes (Q8_0 with a head_dim that is not a multiple of 32, zero slots), kOverBudget
  // with figures.
  // Keys and values are in memory of `backend`, which outlives the pot; per-slot floats are in memory that it shares
  // with the host.
  static Result<std::unique_ptr<Pot>> Make(const PotShape& shape, Backend& backend, Ledger& ledger);
  static Status Check(const PotShape& shape);
  // Bytes Make() reserves, page rounding included.
  static int64_t KvBytes(const PotShape& shape);
  static int64_t MetaBytes(const PotShape& shape);
  // Of KvBytes(), those of the recurrent state and its copies, and those of PotShape::windows and their copies.
  static int64_t StateBytes(const PotShape& shape) { return RecurrentState::Bytes(shape.state); }
  static int64_t WindowBytes(const PotShape& shape);

  const PotShape& shape() const { return shape_; }

  // Slots in use. n_used() is the fullest group's.
  int32_t n_used(int32_t layer, int32_t head) const { return used_[shape_.group_of(layer, head)]; }
  int32_t n_used() const;
  // Number of tokens that every group still has room for.
  int32_t n_free() const;
  // Metadata of a group's used slots, slot order (oldest first).
  std::span<const SlotMeta> meta(int32_t group) const {
    return {meta_.as<SlotMeta>() + GroupBegin(group), static_cast<size_t>(used_[group])};
  }
  // A float kept beside a group's used slots; empty unless it is in PotShape::floats.
  std::span<float> floats(SlotFloat what, int32_t group) const {
    if (!shape_.floats.has(what)) return {};
    return {floats_[static_cast<size_t>(what)].as<float>() + GroupBegin(group), static_cast<size_t>(used_[group])};
  }
  std::span<float> scores(int32_t group) const { return floats(SlotFloat::kScore, group); }
  std::span<float> nll(int32_t group) const { return floats(SlotFloat::kNll, group); }

  // Takes tokens.size() slots at the end of every group, and of the windows; their floats are set to 0. kOverBudget
  // when a group lacks room.
  Status BeginAppend(std::span<const SlotMeta> tokens);
  // Frees the last n slots of every group, and of the windows. REQUIRES: n <= n_used of every group. The recurrent
  // state stays as it is.
  void DropLast(int32_t n);
  // Empties every group, the windows and the recurrent state.
  void Clear();

  // kInvalidArgument when keep is not strictly ascending, has slots outside the group, or drops a pinned one.
  Status CheckKeep(int32_t group, const KeepSet& keep) const;
  // Keeps exactly `keep` of a group: keys and values move in storage, positions follow (kCache, kReset) or stay (kAbs).
  // Nothing changes when CheckKeep() fails.
  Status Compact(int32_t group, const KeepSet& keep);
  // These tokens are no longer pinned in any group.
  void Unpin(SeqRange seqs);
  // After the last Compact() of a selection: gives every head the same amount of free room. Does nothing unless spread
  // > 1.
  void Rebalance();

  // Sets the same floats for the newest values.size() slots of every group. REQUIRES: the float is in PotShape::floats,
  // values.size() <= used slots.
  void SetNewest(SlotFloat what, std::span<const float> values);

  RecurrentState& state() { return state_; }
  const RecurrentState& state() const { return state_; }

  // The layers with slots of their own, as a pot (PotShape::window_pot()); nullptr where there are none.
  const Pot* windows() const { return windows_.get(); }
  // Forgets of the windows what no coming row sees, if n coming rows lack room there. BeginAppend() does that as well,
  // which within a pass of a device costs more.
  Status MakeWindowRoom(int64_t n);
  // Coming rows for which no room is made there; the largest number where there are no windows.
  int64_t n_window_free() const;
  // These rows, some of which may come later, will be taken back: until then the windows also hold the rows before them
  // that rows after them would see without them. An empty range: there are none.
  void SetExcerpt(SeqRange rows) { excerpt_ = rows; }
  // Removes these rows from the windows alone.
  Status DropFromWindows(SeqRange rows);

  // For what cannot un-read, the recurrent state and the windows. They are those of exactly the first n tokens of a
  // stream: remembers them, as Marks::Take().
  void Mark(int64_t n, bool keep);
  // The largest number of tokens, at most n, to which both can go back; 0 if there is none.
  int64_t PlaceBefore(int64_t n) const;
  // Goes back to n tokens, DropLast() having dropped the others. REQUIRES: PlaceBefore(n) == n > 0.
  void Return(int64_t n);

  // Base of one head's slots, and the bytes of one of them.
  uint8_t* keys(int32_t layer, int32_t head) const {
    const Pool& pool = PoolOf(layer);
    return k_.data() + pool.k_begin + (HeadBegin(layer, head) - pool.first_slot) * pool.k_slot_bytes;
  }
  uint8_t* values(int32_t layer, int32_t head) const {
    if (shape_.values_in_keys) return keys(layer, head);
    const Pool& pool = PoolOf(layer);
    return v_.data() + pool.v_begin + (HeadBegin(layer, head) - pool.first_slot) * pool.v_slot_bytes;
  }
  int64_t k_slot_bytes(int32_t layer) const { return PoolOf(layer).k_slot_bytes; }
  int64_t v_slot_bytes(int32_t layer) const {
    return shape_.values_in_keys ? k_slot_bytes(layer) : PoolOf(layer).v_slot_bytes;
  }

  // Writes the contents, state_bytes() bytes. Errors of the sink. Data that a failed device did not return is zero.
  int64_t state_bytes() const;
  Status Save(ByteSink& sink) const;
  // Validates the output of Save() for a pot of the same shape without loading it: kInvalidArgument when it is invalid,
  // or when `fits` rejects a slot; those of the windows have group n_groups().
  using SlotTest = std::function<bool(int32_t group, const SlotMeta&)>;
  Status CheckState(ByteSource& source, const SlotTest& fits) const;
  // Restores a state that CheckState() accepted. If the source now fails, or its contents differ from then, the pot is
  // empty.
  Status Restore(ByteSource& source, const SlotTest& fits);
  // Becomes a copy of a pot on the same backend. kInvalidArgument for another shape; nothing changes then.
  Status CopyFrom(const Pot& other);

 private:
  // The layers of one shape. Slots are counted over the whole pot, pool after pool.
  struct Pool {
    int64_t first_slot = 0, k_begin = 0, v_begin = 0;  // the latter two in bytes
    int64_t k_slot_bytes = 0, v_slot_bytes = 0;        // the latter 0 where values are in the keys
    std::vector<int32_t> heads;                        // PotShape::head_index(), ascending
  };
  // In the order of their first layers.
  static std::vector<Pool> PoolsOf(const PotShape& shape);
  const Pool& PoolOf(int32_t layer) const { return pools_[pool_of_layer_.empty() ? 0 : pool_of_layer_[layer]]; }
  // First slot of a head, or of a group's metadata, counted over the whole pot.
  int64_t HeadBegin(int32_t layer, int32_t head) const {
    const int32_t idx = shape_.head_index(layer, head);
    return begin_.empty() ? (place_.empty() ? idx : place_[idx]) * int64_t{shape_.n_slots} : begin_[idx];
  }
  int64_t GroupBegin(int32_t group) const {
    return begin_.empty() ? static_cast<int64_t>(group) * shape_.n_slots : begin_[group];
  }
  int64_t RoomOf(int32_t group) const { return room_.empty() ? shape_.n_slots : room_[group]; }
  // Calls each(float*) with the pot's floats of every kind that it has.
  template <typename Each>
  void ForFloats(const Each& each) const {
    for (const Buffer& floats : floats_) {
      if (floats.data() != nullptr) each(floats.as<float>());
    }
  }
  Status MakeWindows(Ledger& ledger);
  Status AppendToWindows(std::span<const SlotMeta> tokens);
  void ClearWindows();
  SlotTest OfWindows(const SlotTest& fits) const;
  void LayOutEvenly();
  void Rebalance(const Pool& pool);
  // How many slots every group holds, and where.
  struct Layout {
    std::vector<int32_t> used;
    std::vector<int64_t> begin, room;
  };
  Result<Layout> ReadLayout(ByteSource& source) const;

  PotShape shape_;
  std::vector<Pool> pools_;
  // Where layers differ: [n_layers], index of the pool; [heads of all layers], the head's place among those of the
  // pools in order.
  std::vector<int32_t> pool_of_layer_, place_;
  Backend* backend_ = nullptr;
  Buffer k_, v_;
  HostBuffer meta_;                                    // [n_groups, n_slots] SlotMeta
  std::array<Buffer, std::size(kSlotFloats)> floats_;  // by SlotFloat: [n_groups, n_slots], empty if not kept
  RecurrentState state_;
  std::unique_ptr<Pot> windows_;
  bool is_windows_ = false;  // of another pot
  std::vector<std::unique_ptr<Pot>> window_copies_;
  Marks window_marks_;
  SeqRange excerpt_;
  std::vector<int32_t> used_;          // [n_groups]
  std::vector<int64_t> begin_, room_;  // [n_groups] if heads share storage: regions, in slots of the whole pot
};

}  // namespace weir
