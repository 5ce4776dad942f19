// SPDX-License-Identifier: Apache-2.0
// Keys and values of what a session reads, for its archive: beside each block the mean of its keys, for the selector
// `keys` (after ReKV, arXiv 2503.00540), and keys and values of each of its tokens, for the restorer `kv`.
//
// They are taken from the pot as the rows are read, and are un-rotated, as the pot stores them
// (docs/decisions/0002-unrotated-keys.md): they have no position, so they can be used at any.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "kv/store.h"
#include "recall/archive.h"
#include "recall/block.h"
#include "recall/recorder.h"

namespace weir {

// The vectors' layout in 16-bit numbers. Heads are those of all layers that store keys and values, layers outermost.
struct VectorShape {
  struct Head {
    int32_t layer = 0, head = 0, dim = 0;
    int64_t first = 0;  // its place in an array of a float for each number of all heads
    int64_t key = 0;    // its scale in a block's keys
    int64_t kv = 0;     // its key in a token's keys and values; the value follows
  };
  DType kv_type = DType::kF16;  // of stored keys and values: kF16 or kQ8_0
  int32_t n_layers = 0, most_dim = 0;
  std::vector<Head> heads;

  // Of a pot's layers. REQUIRES: kv_type is kF16 or kQ8_0.
  static VectorShape Of(const PotShape& pot, DType kv_type = DType::kF16);

  int64_t n_heads() const { return std::ssize(heads); }
  int64_t n_floats() const { return heads.empty() ? 0 : heads.back().first + heads.back().dim; }
  // The keys of a block: the block's place in its archive, then for each head a half-precision scale and a signed byte
  // for each number.
  static constexpr int64_t kPlaceNumbers = 4;
  int64_t key_numbers() const { return heads.empty() ? kPlaceNumbers : heads.back().key + 1 + heads.back().dim / 2; }
  // A token's keys and values: its id, its row in a picture and columns, then each head's key and value.
  static constexpr int64_t kTokenNumbers = 4;
  int64_t vector_numbers(const Head& head) const { return RowBytes(kv_type, head.dim) / 2; }
  int64_t kv_numbers() const {
    return heads.empty() ? kTokenNumbers : heads.back().kv + 2 * vector_numbers(heads.back());
  }
};

// Tokens of a record of keys and values at most; a larger picture has several.
inline constexpr int32_t kKvTokens = 64;

// A block's keys, decoded.
struct KeyRecord {
  const Block& block;
  const VectorShape& shape;
  BlockPlace place() const;
  // Of the n-th of VectorShape::heads.
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
// Writes keys, or values, of the n-th head, of some of the block's tokens, as slots of `type`. `scratch`: as many
// floats as the head has numbers.
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
  std::span<float> sums_, vector_;  // of all heads; of the widest one
  std::span<uint16_t> keys_, kv_;   // a record of each
  int64_t n_summed_ = 0;
  Block rows_;  // in kv_
};

}  // namespace weir
