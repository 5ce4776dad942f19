// SPDX-License-Identifier: Apache-2.0
// Keys and values of what a session reads, for its archive: beside each block the mean of its keys, for the selector
// `keys` (after ReKV, arXiv 2503.00540), and keys and values of each of its tokens, for the restorer `kv`.
//
// They are taken from the pot as the rows are read, and are un-rotated, as the pot stores them
// (docs/decisions/0002-unrotated-keys.md): they have no position, so they can be used at any.
#pragma once

#include <cstdint>
#include <span>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "kv/store.h"
#include "recall/archive.h"
#include "recall/block.h"
#include "recall/recorder.h"

namespace weir {

// The vectors' layout in 16-bit numbers.
struct VectorShape {
  int32_t n_layers = 0, n_kv_heads = 0, head_dim = 0;
  DType kv_type = DType::kF16;  // of stored keys and values: kF16 or kQ8_0

  int64_t n_heads() const { return int64_t{n_layers} * n_kv_heads; }
  // The keys of a block: the block's place in its archive, then for each layer and KV head a half-precision scale and
  // head_dim signed bytes.
  static constexpr int64_t kPlaceNumbers = 4;
  int64_t head_numbers() const { return 1 + head_dim / 2; }
  int64_t key_numbers() const { return kPlaceNumbers + n_heads() * head_numbers(); }
  // A token's keys and values: its id, its row in a picture and columns, then [n_layers, n_kv_heads][K, V][head_dim].
  static constexpr int64_t kTokenNumbers = 4;
  int64_t vector_numbers() const { return RowBytes(kv_type, head_dim) / 2; }
  int64_t kv_numbers() const { return kTokenNumbers + n_heads() * 2 * vector_numbers(); }
};

// Tokens of a record of keys and values at most; a larger picture has several.
inline constexpr int32_t kKvTokens = 64;

// A block's keys, decoded.
struct KeyRecord {
  const Block& block;
  const VectorShape& shape;
  BlockPlace place() const;
  // Of the n-th layer and KV head, layers outermost.
  float scale(int64_t head) const;
  const int8_t* key(int64_t head) const;
};
// Whether a block of a store is of this shape.
bool IsKeyRecord(const Block& block, const VectorShape& shape);
bool IsKvRecord(const Block& block, const VectorShape& shape);
// A token of a record of keys and values. REQUIRES: IsKvRecord(), i < block.n_tokens.
struct StoredToken {
  int32_t id = -1;
  uint16_t row = 0;
};
StoredToken TokenOf(const Block& block, const VectorShape& shape, int64_t i);
// Writes keys, or values, of a layer and KV head, of some of the block's tokens, as slots of `type`. `scratch`:
// head_dim floats.
struct TokenRange {
  int64_t begin = 0, end = 0;  // counted from the block's first
};
void WriteStored(const Block& block, const VectorShape& shape, int64_t head, bool values, TokenRange tokens, DType type,
                 uint8_t* slots, float* scratch);

class BlockVectors final : public RowWatcher {
 public:
  // kUnsupported for positions that the stored vectors cannot change, and for a pot that the host cannot read.
  static Status Check(const PotShape& pot, bool on_host);
  static int64_t MemoryBytes(const VectorShape& shape);
  // All must outlive it. The archive has the stores that are to be filled.
  static Result<std::unique_ptr<BlockVectors>> Make(const Pot& pot, Archive& archive, const VectorShape& shape,
                                                    Ledger& ledger);

  void Row(const Block& so_far, int64_t from_end) override;
  // The block whose rows these were went into the archive at `place`.
  void Ended(const Block& block, BlockPlace place);
  void Dropped() override;

 private:
  BlockVectors(const Pot& pot, Archive& archive, const VectorShape& shape)
      : pot_(pot), archive_(archive), shape_(shape) {}
  void StoreKv();

  const Pot& pot_;
  Archive& archive_;
  const VectorShape shape_;
  HostBuffer memory_;
  std::span<float> sums_, vector_;  // [n_layers, n_kv_heads, head_dim]; [head_dim]
  std::span<uint16_t> keys_, kv_;   // a record of each
  int64_t n_summed_ = 0;
  Block rows_;  // in kv_
};

}  // namespace weir
