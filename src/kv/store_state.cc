// SPDX-License-Identifier: Apache-2.0
// A pot as bytes, without a second copy of the pot in memory.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kv/axes.h"
#include "kv/store.h"

namespace weir {
namespace {

// Header of a pot's bytes. The bits of `more_floats` are the SlotFloats after the scores. Where layers differ, their KV
// heads and head sizes follow.
struct PotHeader {
  int32_t n_layers, n_kv_heads, head_dim, n_slots, k_type, v_type, positions, granularity, scores, more_floats, spread;
};

// Numbers of key and value types in saved pots: those of GGUF, except that of Q8_0.
int32_t TypeNumber(DType type) { return type == DType::kQ8_0 ? 4 : static_cast<int32_t>(InfoOf(type).gguf_number); }

PotHeader HeaderOf(const PotShape& s) {
  return {.n_layers = s.n_layers,
          .n_kv_heads = s.n_kv_heads,
          .head_dim = s.head_dim,
          .n_slots = s.n_slots,
          .k_type = TypeNumber(s.k_type),
          .v_type = TypeNumber(s.v_type),
          .positions = static_cast<int32_t>(s.positions),
          .granularity = static_cast<int32_t>(s.granularity),
          .scores = s.floats.has(SlotFloat::kScore),
          .more_floats = static_cast<int32_t>(s.floats.bits() >> 1),
          .spread = s.spread};
}

std::vector<int32_t> LayersOf(const PotShape& s) {
  std::vector<int32_t> out;
  for (const LayerShape& layer : s.layers) out.insert(out.end(), {layer.n_kv_heads, layer.head_dim});
  return out;
}

Status NotAPot() { return InvalidArgument("these bytes are not a saved pot of this shape"); }

// A slot's metadata, field by field: a struct's padding has no defined bytes.
constexpr int64_t kSlotBytes = 24;
using SlotBlock = std::array<uint8_t, 256 * kSlotBytes>;

void Pack(const SlotMeta& m, uint8_t* to) {
  std::memcpy(to, &m.seq, 8);
  std::memcpy(to + 8, &m.t_src_ms, 8);
  std::memcpy(to + 16, &m.token_id, 4);
  to[20] = static_cast<uint8_t>(m.modality);
  to[21] = m.pinned ? 1 : 0;
  std::memcpy(to + 22, &m.row, 2);
}

// Whether a number below 0 is a VisualId().
bool IsVisualId(int32_t id) {
  return id >= VisualId(kMaxColumns, kMaxSteps) && -id % kStepUnit >= 1 && -id % kStepUnit <= kMaxColumns;
}

// False for an invalid slot.
bool Unpack(const uint8_t* from, SlotMeta* m) {
  std::memcpy(&m->seq, from, 8);
  std::memcpy(&m->t_src_ms, from + 8, 8);
  std::memcpy(&m->token_id, from + 16, 4);
  std::memcpy(&m->row, from + 22, 2);
  if (from[20] > static_cast<uint8_t>(Modality::kVideo) || from[21] > 1) return false;
  if (m->token_id < 0 && !IsVisualId(m->token_id)) return false;
  m->modality = static_cast<Modality>(from[20]);
  m->pinned = from[21] != 0;
  return true;
}

// `each(slot, meta)` says whether it is acceptable.
template <typename Each>
Status ReadSlots(ByteSource& source, int32_t n, const Each& each) {
  SlotBlock block;
  constexpr int32_t kMost = static_cast<int32_t>(block.size() / kSlotBytes);
  for (int32_t first = 0; first < n; first += kMost) {
    const int32_t n_here = std::min(kMost, n - first);
    WEIR_RETURN_IF_ERROR(source.Read({block.data(), static_cast<size_t>(n_here * kSlotBytes)}));
    for (int32_t i = 0; i < n_here; ++i) {
      SlotMeta meta;
      if (!Unpack(block.data() + i * kSlotBytes, &meta) || !each(first + i, meta)) return NotAPot();
    }
  }
  return Status();
}

Status WriteSlots(std::span<const SlotMeta> slots, ByteSink& sink) {
  SlotBlock block;
  while (!slots.empty()) {
    const size_t n_here = std::min(slots.size(), block.size() / kSlotBytes);
    for (size_t i = 0; i < n_here; ++i) Pack(slots[i], block.data() + i * kSlotBytes);
    WEIR_RETURN_IF_ERROR(sink.Write({block.data(), n_here * kSlotBytes}));
    slots = slots.subspan(n_here);
  }
  return Status();
}

// Keys and values may be in device memory: data between it and a file passes through a host buffer of this size, and
// every such piece waits for the device.
using Bounce = std::array<uint8_t, 1 << 15>;

}  // namespace

int64_t Pot::state_bytes() const {
  int64_t n = sizeof(PotHeader) + std::ssize(LayersOf(shape_)) * 4 + std::ssize(used_) * 4 +
              (std::ssize(begin_) + std::ssize(room_)) * 8;
  for (int32_t group = 0; group < shape_.n_groups(); ++group) {
    n += std::ssize(meta(group)) * (kSlotBytes + std::popcount(shape_.floats.bits()) * 4);
  }
  for (int32_t layer = 0; layer < shape_.n_layers; ++layer) {
    for (int32_t head = 0; head < shape_.n_kv_heads_of(layer); ++head) {
      n += n_used(layer, head) * (k_slot_bytes(layer) + PoolOf(layer).v_slot_bytes);
    }
  }
  return n + (windows_ == nullptr ? 0 : windows_->state_bytes()) + state_.n_floats() * 4;
}

Status Pot::Save(ByteSink& sink) const {
  backend_->Synchronise();  // scores are read in place
  const PotHeader header = HeaderOf(shape_);
  const std::vector<int32_t> layers = LayersOf(shape_);
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span<const PotHeader>(&header, 1))));
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(layers))));
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(used_))));
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(begin_))));
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(room_))));
  for (int32_t group = 0; group < shape_.n_groups(); ++group) {
    WEIR_RETURN_IF_ERROR(WriteSlots(meta(group), sink));
    for (const SlotFloat what : kSlotFloats) WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(floats(what, group))));
  }
  Bounce bounce;
  const auto write = [&](const uint8_t* from, int64_t n_bytes) -> Status {
    for (int64_t at = 0; at < n_bytes; at += std::ssize(bounce)) {
      const int64_t n_here = std::min(std::ssize(bounce), n_bytes - at);
      backend_->Copy(bounce.data(), from + at, n_here);
      WEIR_RETURN_IF_ERROR(sink.Write({bounce.data(), static_cast<size_t>(n_here)}));
    }
    return Status();
  };
  for (int32_t layer = 0; layer < shape_.n_layers; ++layer) {
    for (int32_t head = 0; head < shape_.n_kv_heads_of(layer); ++head) {
      WEIR_RETURN_IF_ERROR(write(keys(layer, head), n_used(layer, head) * k_slot_bytes(layer)));
      WEIR_RETURN_IF_ERROR(write(values(layer, head), n_used(layer, head) * PoolOf(layer).v_slot_bytes));
    }
  }
  if (windows_ != nullptr) WEIR_RETURN_IF_ERROR(windows_->Save(sink));
  return state_.Save(sink);
}

Result<Pot::Layout> Pot::ReadLayout(ByteSource& source) const {
  const PotHeader expected = HeaderOf(shape_);
  PotHeader header;
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(&header, 1))));
  if (is_windows_) header.n_slots = expected.n_slots;  // it depends on a probe; what they hold must fit
  if (std::memcmp(&header, &expected, sizeof(header)) != 0) return NotAPot();
  const std::vector<int32_t> expected_layers = LayersOf(shape_);
  std::vector<int32_t> layers(expected_layers.size());
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(layers))));
  if (layers != expected_layers) return NotAPot();
  Layout layout{std::vector<int32_t>(used_.size()), std::vector<int64_t>(begin_.size()),
                std::vector<int64_t>(room_.size())};
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(layout.used))));
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(layout.begin))));
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(layout.room))));
  for (size_t group = 0; group < layout.used.size(); ++group) {
    const int64_t most = layout.room.empty() ? shape_.n_slots : layout.room[group];
    if (layout.used[group] < 0 || layout.used[group] > most) return NotAPot();
  }
  if (layout.begin.empty()) return layout;
  for (const Pool& pool : pools_) {
    int64_t end = pool.first_slot;  // regions in order, inside the pool, without overlap
    const int64_t pool_end = end + std::ssize(pool.heads) * shape_.n_slots;
    for (const int32_t head : pool.heads) {
      const int64_t begin = layout.begin[head], room = layout.room[head];
      if (begin < end || room > shape_.max_head_slots() || begin > pool_end - room) return NotAPot();
      end = begin + room;
    }
  }
  return layout;
}

Pot::SlotTest Pot::OfWindows(const SlotTest& fits) const {
  return
      [&fits, group = shape_.n_groups()](int32_t, const SlotMeta& slot) { return !slot.pinned && fits(group, slot); };
}

Status Pot::CheckState(ByteSource& source, const SlotTest& fits) const {
  WEIR_ASSIGN_OR_RETURN(const Layout layout, ReadLayout(source));
  for (int32_t group = 0; group < shape_.n_groups(); ++group) {
    const int32_t n = layout.used[group];
    WEIR_RETURN_IF_ERROR(ReadSlots(source, n, [&](int32_t, const SlotMeta& meta) { return fits(group, meta); }));
    WEIR_RETURN_IF_ERROR(source.Skip(int64_t{n} * std::popcount(shape_.floats.bits()) * 4));
  }
  for (int32_t layer = 0; layer < shape_.n_layers; ++layer) {
    for (int32_t head = 0; head < shape_.n_kv_heads_of(layer); ++head) {
      const int64_t n = layout.used[shape_.group_of(layer, head)];
      WEIR_RETURN_IF_ERROR(source.Skip(n * (k_slot_bytes(layer) + PoolOf(layer).v_slot_bytes)));
    }
  }
  if (windows_ != nullptr) WEIR_RETURN_IF_ERROR(windows_->CheckState(source, OfWindows(fits)));
  return source.Skip(state_.n_floats() * 4);
}

Status Pot::Restore(ByteSource& source, const SlotTest& fits) {
  backend_->Synchronise();
  Clear();
  WEIR_ASSIGN_OR_RETURN(const Layout layout, ReadLayout(source));
  used_ = layout.used;
  begin_ = layout.begin;
  room_ = layout.room;
  const auto fill = [&]() -> Status {
    for (int32_t group = 0; group < shape_.n_groups(); ++group) {
      SlotMeta* const slots = meta_.as<SlotMeta>() + GroupBegin(group);
      WEIR_RETURN_IF_ERROR(ReadSlots(source, used_[group], [&](int32_t slot, const SlotMeta& meta) {
        slots[slot] = meta;
        return fits(group, meta);
      }));
      for (const SlotFloat what : kSlotFloats) WEIR_RETURN_IF_ERROR(source.Read(BytesOf(floats(what, group))));
    }
    Bounce bounce;
    const auto read = [&](uint8_t* to, int64_t n_bytes) -> Status {
      for (int64_t at = 0; at < n_bytes; at += std::ssize(bounce)) {
        const int64_t n_here = std::min(std::ssize(bounce), n_bytes - at);
        WEIR_RETURN_IF_ERROR(source.Read({bounce.data(), static_cast<size_t>(n_here)}));
        backend_->Copy(to + at, bounce.data(), n_here);
      }
      return Status();
    };
    for (int32_t layer = 0; layer < shape_.n_layers; ++layer) {
      for (int32_t head = 0; head < shape_.n_kv_heads_of(layer); ++head) {
        WEIR_RETURN_IF_ERROR(read(keys(layer, head), n_used(layer, head) * k_slot_bytes(layer)));
        WEIR_RETURN_IF_ERROR(read(values(layer, head), n_used(layer, head) * PoolOf(layer).v_slot_bytes));
      }
    }
    if (windows_ != nullptr) WEIR_RETURN_IF_ERROR(windows_->Restore(source, OfWindows(fits)));
    return state_.Restore(source);
  };
  const Status filled = fill();
  if (!filled.ok()) Clear();
  return filled;
}

Status Pot::CopyFrom(const Pot& other) {
  const PotHeader mine = HeaderOf(shape_), its = HeaderOf(other.shape_);
  if (std::memcmp(&mine, &its, sizeof(mine)) != 0 || shape_.layers != other.shape_.layers ||
      state_.n_floats() != other.state_.n_floats() || shape_.windows.n_slots != other.shape_.windows.n_slots ||
      shape_.windows.layers != other.shape_.windows.layers) {
    return InvalidArgument("the pots differ in shape");
  }
  if (this == &other) return Status();
  ClearWindows();
  if (windows_ != nullptr) WEIR_RETURN_IF_ERROR(windows_->CopyFrom(*other.windows_));
  backend_->Synchronise();
  used_ = other.used_;
  begin_ = other.begin_;
  room_ = other.room_;
  for (int32_t group = 0; group < shape_.n_groups(); ++group) {
    std::ranges::copy(other.meta(group), meta_.as<SlotMeta>() + GroupBegin(group));
    for (const SlotFloat what : kSlotFloats) {
      std::ranges::copy(other.floats(what, group), floats(what, group).begin());
    }
  }
  for (int32_t layer = 0; layer < shape_.n_layers; ++layer) {
    for (int32_t head = 0; head < shape_.n_kv_heads_of(layer); ++head) {
      backend_->Copy(keys(layer, head), other.keys(layer, head), n_used(layer, head) * k_slot_bytes(layer));
      backend_->Copy(values(layer, head), other.values(layer, head), n_used(layer, head) * PoolOf(layer).v_slot_bytes);
    }
  }
  state_.CopyFrom(other.state_);
  return Status();
}

}  // namespace weir
