// SPDX-License-Identifier: Apache-2.0
#include "recall/block_vectors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/workspace.h"
#include "ops/kv_slots.h"
#include "quant/half.h"

namespace weir {
namespace {

struct Sizes {
  int64_t sums, vector, keys, kv;
  explicit Sizes(const VectorShape& shape)
      : sums(AlignedBytes(shape.n_floats() * 4)),
        vector(AlignedBytes(int64_t{shape.most_dim} * 4)),
        keys(AlignedBytes(shape.key_numbers() * 2)),
        kv(AlignedBytes(shape.kv_numbers() * kKvTokens * 2)) {}
  int64_t total() const { return sums + vector + keys + kv; }
};

// A vector as the store or the pot has it, for the other.
void Convert(DType from_type, const uint8_t* from, DType to_type, uint8_t* to, int64_t n, float* scratch) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<size_t>(RowBytes(to_type, n)));
  } else {
    ref::LoadSlot(from_type, from, 0, n, scratch);
    ref::StoreSlots({.x = scratch, .x_stride = n, .n_rows = 1, .head_dim = n, .type = to_type, .slots = to});
  }
}

}  // namespace

VectorShape VectorShape::Of(const PotShape& pot, DType kv_type) {
  VectorShape out;
  out.kv_type = kv_type;
  out.n_layers = pot.n_layers;
  out.most_dim = pot.head_dim;
  Head next = {.key = kPlaceNumbers, .kv = kTokenNumbers};
  for (int32_t layer = 0; layer < pot.n_layers; ++layer) {
    for (int32_t head = 0; head < pot.n_kv_heads_of(layer); ++head) {
      next.layer = layer;
      next.head = head;
      next.dim = pot.head_dim_of(layer);
      out.heads.push_back(next);
      next.first += next.dim;
      next.key += 1 + next.dim / 2;
      next.kv += 2 * out.vector_numbers(next);
    }
  }
  return out;
}

BlockPlace KeyRecord::place() const {
  BlockPlace out = 0;
  std::memcpy(&out, block.rows.data(), sizeof(out));
  return out;
}

float KeyRecord::scale(int64_t head) const {
  return F16ToF32(block.rows[static_cast<size_t>(shape.heads[static_cast<size_t>(head)].key)]);
}

const int8_t* KeyRecord::key(int64_t head) const {
  return reinterpret_cast<const int8_t*>(block.rows.data() + shape.heads[static_cast<size_t>(head)].key + 1);
}

bool IsKeyRecord(const Block& block, const VectorShape& shape) {
  return block.body == BlockBody::kOneRow && std::ssize(block.rows) == shape.key_numbers();
}

bool IsKvRecord(const Block& block, const VectorShape& shape) {
  return block.body == BlockBody::kRowEach && std::ssize(block.rows) == block.n_tokens * shape.kv_numbers();
}

StoredToken TokenOf(const Block& block, const VectorShape& shape, int64_t i) {
  const uint16_t* const at = block.rows.data() + i * shape.kv_numbers();
  StoredToken out;
  std::memcpy(&out.id, at, sizeof(out.id));
  out.row = at[2];
  return out;
}

void WriteStored(const Block& block, const VectorShape& shape, int64_t head, bool values, TokenRange tokens, DType type,
                 uint8_t* slots, float* scratch) {
  const VectorShape::Head& of = shape.heads[static_cast<size_t>(head)];
  const int64_t at = of.kv + (values ? shape.vector_numbers(of) : 0);
  const int64_t slot_bytes = RowBytes(type, of.dim);
  for (int64_t i = tokens.begin; i < tokens.end; ++i, slots += slot_bytes) {
    const auto* const from = reinterpret_cast<const uint8_t*>(block.rows.data() + i * shape.kv_numbers() + at);
    Convert(shape.kv_type, from, type, slots, of.dim, scratch);
  }
}

Status BlockVectors::Check(const PotShape& pot, bool on_host) {
  if (pot.positions == Positions::kAbs) {
    return Unsupported(
        "recall by keys and values needs positions that follow the pot's slots, and this policy keeps those of the "
        "stream; choose another policy, or --recall words");
  }
  if (!on_host) return Unsupported("recall by keys and values needs a pot in the host's memory; use --recall words");
  return Status();
}

int64_t BlockVectors::MemoryBytes(const VectorShape& shape) { return PageRound(Sizes(shape).total()); }

Result<std::unique_ptr<BlockVectors>> BlockVectors::Make(const Pot& pot, Archive& archive, const VectorShape& shape,
                                                         Ledger& ledger) {
  if (pot.windows() != nullptr)
    return Internal("vectors of all layers, of a pot whose windows have slots of their own");
  std::unique_ptr<BlockVectors> out(new BlockVectors(pot, archive, shape));
  const Sizes sizes(shape);
  WEIR_ASSIGN_OR_RETURN(out->memory_, HostBuffer::Allocate(ledger, MemTag::kOther, sizes.total()));
  uint8_t* at = out->memory_.data();
  out->sums_ = {reinterpret_cast<float*>(at), static_cast<size_t>(shape.n_floats())};
  at += sizes.sums;
  out->vector_ = {reinterpret_cast<float*>(at), static_cast<size_t>(shape.most_dim)};
  at += sizes.vector;
  out->keys_ = {reinterpret_cast<uint16_t*>(at), static_cast<size_t>(shape.key_numbers())};
  at += sizes.keys;
  out->kv_ = {reinterpret_cast<uint16_t*>(at), static_cast<size_t>(shape.kv_numbers() * kKvTokens)};
  return out;
}

void BlockVectors::Row(const Block& so_far, int64_t from_end) {
  const PotShape& pot = pot_.shape();
  uint16_t* to = nullptr;
  if (archive_.kv() != nullptr) {
    const bool follows = rows_.n_tokens > 0 && rows_.modality == so_far.modality && rows_.role == so_far.role;
    if (rows_.n_tokens == kKvTokens || !follows) StoreKv();
    const std::span<const SlotMeta> slots = pot_.meta(0);
    const SlotMeta& slot = slots[slots.size() - static_cast<size_t>(from_end)];
    if (rows_.n_tokens == 0) {
      rows_ = {.seq = slot.seq, .t_ms = slot.t_src_ms, .role = so_far.role, .modality = so_far.modality};
      rows_.body = BlockBody::kRowEach;
    }
    to = kv_.data() + rows_.n_tokens * shape_.kv_numbers();
    std::memcpy(to, &slot.token_id, sizeof(slot.token_id));
    to[2] = slot.row;
    to[3] = 0;
    to += VectorShape::kTokenNumbers;
    ++rows_.n_tokens;
  }
  for (const VectorShape::Head& of : shape_.heads) {
    const auto put = [&](DType type, const uint8_t* slot) {
      Convert(type, slot, shape_.kv_type, reinterpret_cast<uint8_t*>(to), of.dim, vector_.data());
      to += shape_.vector_numbers(of);
    };
    const int64_t slot = pot_.n_used(of.layer, of.head) - from_end;
    const uint8_t* const key = pot_.keys(of.layer, of.head) + slot * pot_.k_slot_bytes(of.layer);
    if (archive_.keys() != nullptr) {
      float* const sums = sums_.data() + of.first;
      ref::LoadSlot(pot.k_type, key, 0, of.dim, vector_.data());
      for (int32_t d = 0; d < of.dim; ++d) sums[d] += vector_[static_cast<size_t>(d)];
    }
    if (to == nullptr) continue;
    put(pot.k_type, key);
    put(pot.v_type, pot_.values(of.layer, of.head) + slot * pot_.v_slot_bytes(of.layer));
  }
  ++n_summed_;
}

void BlockVectors::StoreKv() {
  if (rows_.n_tokens > 0) {
    rows_.rows = kv_.first(static_cast<size_t>(rows_.n_tokens * shape_.kv_numbers()));
    (void)archive_.kv()->Append(rows_);  // what cannot be kept is read again instead
  }
  rows_ = {};
}

void BlockVectors::Ended(const Block& block, BlockPlace place) {
  if (archive_.kv() != nullptr) StoreKv();
  if (archive_.keys() != nullptr && n_summed_ > 0) {
    std::memcpy(keys_.data(), &place, sizeof(place));
    for (const VectorShape::Head& of : shape_.heads) {
      uint16_t* const to = keys_.data() + of.key;
      const float* const sums = sums_.data() + of.first;
      float most = 0;
      for (int32_t d = 0; d < of.dim; ++d) most = std::max(most, std::abs(sums[d]));
      const float mean_most = most / static_cast<float>(n_summed_);
      to[0] = F32ToF16(mean_most / 127);
      auto* const bytes = reinterpret_cast<int8_t*>(to + 1);
      const float inverse = most > 0 ? 127 / most : 0;
      for (int32_t d = 0; d < of.dim; ++d) bytes[d] = static_cast<int8_t>(std::lrint(sums[d] * inverse));
    }
    Block record = block;
    record.text = {};
    record.columns = 1;
    record.body = BlockBody::kOneRow;
    record.rows = keys_;
    (void)archive_.keys()->Append(record);  // what cannot be kept is not found by its keys
  }
  std::ranges::fill(sums_, 0.0f);
  n_summed_ = 0;
}

void BlockVectors::Dropped() {
  rows_ = {};
  std::ranges::fill(sums_, 0.0f);
  n_summed_ = 0;
}

}  // namespace weir
