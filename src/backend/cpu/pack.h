// Weight matrices in the layout the CPU kernels read, packed once when a model is loaded.
//
// Output rows are grouped into panels of kPanel = 16, one SIMD lane a row; rows that pad the last panel are zero.
// Inside a panel everything lies in the order in which a product walks along k, so that a pass over a matrix is a pass
// over memory.
//
// Block formats. A panel is [n_blocks][code bytes] followed by the scales. The codes of one block of 32 along k:
// - 8 bits: 8 groups of 64 bytes; byte 4 * col + i of group g is the code of k = 4 g + i (the order of VNNI
// instructions);
// - 4 bits: 4 x 64 bytes; vector g holds group g in its low and group g + 4 in its high nibbles;
// - 5 bits: as 4 bits, then 8 words of 64 bits: bit 4 * col + i of word g is the fifth bit of that byte of group g;
// - 6 bits: as 4 bits, then 2 x 64 bytes: bits 2 j, 2 j + 1 of a byte of vector h are the upper bits of group 4 h + j.
// Codes are unsigned: the value is (code - offset) * scale (+ minimum).
//
// Scales of a panel:
// - kHalf      [n_blocks] of d[16] (F16)
// - kHalfMin   [n_blocks] of d[16], m[16] (F16); value = code * d + m
// - kSuper     per 256 along k: d[16], dmin[16] (F16), then 8 blocks of sc[16], mn[16] (u8);
//              value = code * (d * sc) - dmin * mn
// - kSuper16   per 256 along k: d[16] (F16), then 8 blocks of sc[2][16] (s8), one for each 16 along k;
//              value = (code - offset) * (d * sc)
// These are the file's own numbers, regrouped: decoding a packed row gives the same bits as decoding the file's row.
//
// Plain types (F32, F16, BF16): a panel is [n_in][16] elements in their storage type.
#pragma once

#include <cstdint>
#include <memory>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "ops/matmul.h"
#include "tensor/dtype.h"

namespace weir::cpu {

inline constexpr int kPanel = 16;
inline constexpr int kSuperBlocks = 8;  // blocks of 32 in a block of 256

enum class ScaleKind { kHalf, kHalfMin, kSuper, kSuper16 };

// How a block format is packed. bits == 0: a plain type.
struct PackLayout {
  int bits = 0;
  int offset_log2 = -1;  // offset = 1 << offset_log2; -1: none
  ScaleKind scales = ScaleKind::kHalf;

  constexpr int64_t code_bytes() const { return int64_t{bits} * 64; }  // of one block of 32 x 16
  constexpr int64_t super_bytes() const {
    return scales == ScaleKind::kSuper ? 64 + kSuperBlocks * 32 : 32 + kSuperBlocks * 32;
  }
  constexpr int64_t scale_bytes(int64_t n_blocks) const {
    switch (scales) {
      case ScaleKind::kHalf:
        return n_blocks * 32;
      case ScaleKind::kHalfMin:
        return n_blocks * 64;
      default:
        return n_blocks / kSuperBlocks * super_bytes();
    }
  }
};

constexpr PackLayout LayoutOf(DType type) {
  switch (type) {
    case DType::kQ8_0:
      return {8, 7, ScaleKind::kHalf};
    case DType::kQ4_0:
      return {4, 3, ScaleKind::kHalf};
    case DType::kQ4_1:
      return {4, -1, ScaleKind::kHalfMin};
    case DType::kQ5_0:
      return {5, 4, ScaleKind::kHalf};
    case DType::kQ5_1:
      return {5, -1, ScaleKind::kHalfMin};
    case DType::kQ4_K:
      return {4, -1, ScaleKind::kSuper};
    case DType::kQ5_K:
      return {5, -1, ScaleKind::kSuper};
    case DType::kQ6_K:
      return {6, 5, ScaleKind::kSuper16};
    default:
      return {};
  }
}

// The code of column `col` at k (0 .. 31) of a packed block.
inline int GetCode(int bits, const uint8_t* in, int col, int k) {
  const int group = k / 4, byte = 4 * col + k % 4;
  if (bits == 8) return in[group * 64 + byte];
  const int low = in[group % 4 * 64 + byte] >> (group < 4 ? 0 : 4) & 15;
  if (bits == 5) return low | (in[256 + group * 8 + byte / 8] >> (byte % 8) & 1) << 4;
  if (bits == 6) return low | (in[256 + group / 4 * 64 + byte] >> (2 * (group % 4)) & 3) << 4;
  return low;
}

class PackedMatrix final : public Matrix {
 public:
  // Checks, reserves exactly the bytes of the packed form under kWeights, then packs on the pool. Errors of
  // CheckMatrixSource; kCorrupt for a weight that is NaN or infinite; kOverBudget; kIo when the system has no memory.
  static Result<std::unique_ptr<Matrix>> Make(const MatrixSource& source, Ledger& ledger, ThreadPool& pool);

  // Bytes of the packed form, before page rounding. REQUIRES: a source that passed CheckMatrixSource.
  static int64_t PackedBytes(DType type, int64_t n_out, int64_t n_in);

  int64_t n_panels() const { return (n_out_ + kPanel - 1) / kPanel; }
  int64_t n_blocks() const { return n_in_ / kQ8Block; }
  const uint8_t* panel(int64_t p) const { return buffer_.data() + p * panel_bytes_; }
  int64_t panel_bytes() const { return panel_bytes_; }

  // Row o as floats: the same bits as DecodeRow of the file's row. REQUIRES: 0 <= o < n_out.
  void DecodeRow(int64_t o, float* out) const;

 private:
  PackedMatrix(const MatrixSource& source, HostBuffer buffer);
  void PackPanel(const MatrixSource& source, int64_t p);

  HostBuffer buffer_;
  int64_t panel_bytes_ = 0;
};

}  // namespace weir::cpu
