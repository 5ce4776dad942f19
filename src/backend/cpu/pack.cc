#include "backend/cpu/pack.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "quant/format.h"
#include "quant/half.h"

namespace weir::cpu {
namespace {

int64_t PanelBytes(DType type, int64_t n_in) {
  const PackLayout layout = LayoutOf(type);
  if (layout.bits == 0) return n_in * kPanel * InfoOf(type).block_bytes;
  const int64_t n_blocks = n_in / kQ8Block;
  return (n_blocks * layout.code_bytes() + layout.scale_bytes(n_blocks) + 63) / 64 * 64;
}

// The 32 codes of one block along k, and its scales as the file has them.
struct Block32 {
  uint8_t code[kQ8Block];
  uint16_t d = 0, m = 0;    // F16; m: minimum, or dmin of a super-block
  uint8_t sub[2] = {0, 0};  // kSuper: sc, mn; kSuper16: the two scales' bits
};

void ReadNibbles(const uint8_t* qs, uint8_t* code) {
  for (int i = 0; i < 16; ++i) {
    code[i] = qs[i] & 15;
    code[i + 16] = qs[i] >> 4;
  }
}

void ReadFifthBits(const uint8_t* qh, uint8_t* code) {
  for (int i = 0; i < 32; ++i) code[i] |= static_cast<uint8_t>((qh[i / 8] >> (i % 8) & 1) << 4);
}

// Scale and minimum j of the 12 bytes that hold eight 6-bit pairs (Q4_K, Q5_K).
void ReadSixBitPair(const uint8_t* s, int j, uint8_t* sub) {
  if (j < 4) {
    sub[0] = s[j] & 63;
    sub[1] = s[j + 4] & 63;
  } else {
    sub[0] = static_cast<uint8_t>((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    sub[1] = static_cast<uint8_t>((s[j + 4] >> 4) | (s[j] >> 6) << 4);
  }
}

uint16_t ReadU16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }

// Block b of a row.
Block32 ReadBlock(DType type, const uint8_t* row, int64_t b) {
  Block32 out;
  const int64_t block_bytes = InfoOf(type).block_bytes;
  const int j = static_cast<int>(b % kSuperBlocks);  // block of 32 in its block of 256
  const uint8_t* at = row + (InfoOf(type).block_elements == kQ8Block ? b : b / kSuperBlocks) * block_bytes;
  switch (type) {
    case DType::kQ8_0:
      out.d = ReadU16(at);
      for (int i = 0; i < 32; ++i) out.code[i] = at[2 + i] ^ 0x80;  // s8 + 128
      break;
    case DType::kQ4_0:
      out.d = ReadU16(at);
      ReadNibbles(at + 2, out.code);
      break;
    case DType::kQ4_1:
      out.d = ReadU16(at);
      out.m = ReadU16(at + 2);
      ReadNibbles(at + 4, out.code);
      break;
    case DType::kQ5_0:
      out.d = ReadU16(at);
      ReadNibbles(at + 6, out.code);
      ReadFifthBits(at + 2, out.code);
      break;
    case DType::kQ5_1:
      out.d = ReadU16(at);
      out.m = ReadU16(at + 2);
      ReadNibbles(at + 8, out.code);
      ReadFifthBits(at + 4, out.code);
      break;
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const bool five = type == DType::kQ5_K;
      const uint8_t* qh = at + 16;
      const uint8_t* qs = at + (five ? 48 : 16) + j / 2 * 32;
      out.d = ReadU16(at);
      out.m = ReadU16(at + 2);
      ReadSixBitPair(at + 4, j, out.sub);
      for (int i = 0; i < 32; ++i) {
        out.code[i] = j % 2 == 0 ? qs[i] & 15 : qs[i] >> 4;
        if (five) out.code[i] |= static_cast<uint8_t>((qh[i] >> j & 1) << 4);
      }
      break;
    }
    case DType::kQ6_K: {
      const int half = j / 4, quarter = j % 4;  // 128 elements share 64 + 32 bytes
      const uint8_t* ql = at + half * 64 + quarter % 2 * 32;
      const uint8_t* qh = at + 128 + half * 32;
      for (int i = 0; i < 32; ++i) {
        const int low = quarter < 2 ? ql[i] & 15 : ql[i] >> 4;
        out.code[i] = static_cast<uint8_t>(low | (qh[i] >> (2 * quarter) & 3) << 4);
      }
      out.sub[0] = at[192 + 2 * j];
      out.sub[1] = at[192 + 2 * j + 1];
      out.d = ReadU16(at + 208);
      break;
    }
    default:
      break;
  }
  return out;
}

// Writes the codes of one column into a block of a panel. REQUIRES: the block's bytes were zero.
void PutCodes(int bits, const uint8_t* code, int col, uint8_t* out) {
  if (bits == 8) {
    for (int group = 0; group < 8; ++group) std::memcpy(out + group * 64 + 4 * col, code + 4 * group, 4);
    return;
  }
  uint8_t pairs[16];
  for (int k = 0; k < 16; ++k) pairs[k] = static_cast<uint8_t>((code[k] & 15) | code[k + 16] << 4);
  for (int group = 0; group < 4; ++group) std::memcpy(out + group * 64 + 4 * col, pairs + 4 * group, 4);
  if (bits == 4) return;
  for (int k = 0; k < kQ8Block; ++k) {
    const int group = k / 4, byte = 4 * col + k % 4;
    if (bits == 5) {
      out[256 + group * 8 + byte / 8] |= static_cast<uint8_t>((code[k] >> 4) << (byte % 8));
    } else {
      out[256 + group / 4 * 64 + byte] |= static_cast<uint8_t>((code[k] >> 4) << (2 * (group % 4)));
    }
  }
}

void PutU16(uint8_t* at, int col, uint16_t value) { std::memcpy(at + 2 * col, &value, 2); }
float GetF16(const uint8_t* at, int col) { return F16ToF32(ReadU16(at + 2 * col)); }

}  // namespace

int64_t PackedMatrix::PackedBytes(DType type, int64_t n_out, int64_t n_in) {
  return (n_out + kPanel - 1) / kPanel * PanelBytes(type, n_in);
}

PackedMatrix::PackedMatrix(const MatrixSource& source, HostBuffer buffer)
    : Matrix(source.type, source.n_out, source.n_in),
      buffer_(std::move(buffer)),
      panel_bytes_(PanelBytes(source.type, source.n_in)) {
  bytes_ = n_panels() * panel_bytes_;
}

Result<std::unique_ptr<Matrix>> PackedMatrix::Make(const MatrixSource& source, Ledger& ledger, ThreadPool& pool) {
  WEIR_RETURN_IF_ERROR(CheckMatrixSource(source));
  WEIR_ASSIGN_OR_RETURN(
      HostBuffer buffer,
      HostBuffer::Allocate(ledger, MemTag::kWeights, PackedBytes(source.type, source.n_out, source.n_in), &pool));
  std::unique_ptr<PackedMatrix> matrix(new PackedMatrix(source, std::move(buffer)));
  const int64_t row_bytes = RowBytes(source.type, source.n_in);
  std::atomic<bool> finite{true};
  pool.For(matrix->n_panels(), [&](int64_t p, int) {
    for (int64_t o = p * kPanel; o < std::min(source.n_out, (p + 1) * kPanel); ++o) {
      const int64_t row = source.row_order != nullptr ? source.row_order[o] : o;
      if (!AllFinite(source.type, source.data + row * row_bytes, source.n_in)) finite.store(false);
    }
    matrix->PackPanel(source, p);
  });
  if (!finite.load()) return Corrupt("tensor %s: a weight is NaN or infinite", source.name);
  return std::unique_ptr<Matrix>(std::move(matrix));
}

void PackedMatrix::PackPanel(const MatrixSource& source, int64_t p) {
  uint8_t* to = buffer_.data() + p * panel_bytes_;
  const PackLayout layout = LayoutOf(type_);
  const int64_t row_bytes = RowBytes(type_, n_in_);
  const int n_cols = static_cast<int>(std::min<int64_t>(kPanel, n_out_ - p * kPanel));
  for (int col = 0; col < n_cols; ++col) {
    const int64_t o = p * kPanel + col;
    const uint8_t* row = source.data + (source.row_order != nullptr ? source.row_order[o] : o) * row_bytes;
    if (layout.bits == 0) {
      const int64_t size = InfoOf(type_).block_bytes;
      for (int64_t k = 0; k < n_in_; ++k) std::memcpy(to + (k * kPanel + col) * size, row + k * size, size);
      continue;
    }
    uint8_t* scales = to + n_blocks() * layout.code_bytes();
    for (int64_t b = 0; b < n_blocks(); ++b) {
      const Block32 block = ReadBlock(type_, row, b);
      PutCodes(layout.bits, block.code, col, to + b * layout.code_bytes());
      uint8_t* super = scales + b / kSuperBlocks * layout.super_bytes();
      const int64_t j = b % kSuperBlocks;
      switch (layout.scales) {
        case ScaleKind::kHalf:
          PutU16(scales + b * 32, col, block.d);
          break;
        case ScaleKind::kHalfMin:
          PutU16(scales + b * 64, col, block.d);
          PutU16(scales + b * 64 + 32, col, block.m);
          break;
        case ScaleKind::kSuper:
          PutU16(super, col, block.d);
          PutU16(super + 32, col, block.m);
          super[64 + j * 32 + col] = block.sub[0];
          super[64 + j * 32 + 16 + col] = block.sub[1];
          break;
        case ScaleKind::kSuper16:
          PutU16(super, col, block.d);
          super[32 + j * 32 + col] = block.sub[0];
          super[32 + j * 32 + 16 + col] = block.sub[1];
          break;
      }
    }
  }
}

void PackedMatrix::DecodeRow(int64_t o, float* out) const {
  const uint8_t* from = panel(o / kPanel);
  const int col = static_cast<int>(o % kPanel);
  const PackLayout layout = LayoutOf(type_);
  if (layout.bits == 0) {
    const int64_t size = InfoOf(type_).block_bytes;
    for (int64_t k = 0; k < n_in_; ++k) weir::DecodeRow(type_, from + (k * kPanel + col) * size, 1, out + k);
    return;
  }
  const uint8_t* scales = from + n_blocks() * layout.code_bytes();
  const int offset = layout.offset_log2 < 0 ? 0 : 1 << layout.offset_log2;
  for (int64_t b = 0; b < n_blocks(); ++b, out += kQ8Block) {
    const uint8_t* super = scales + b / kSuperBlocks * layout.super_bytes();
    const int64_t j = b % kSuperBlocks;
    float scale[2] = {0, 0};  // of the first and the last 16 elements
    float add = 0;
    switch (layout.scales) {
      case ScaleKind::kHalf:
        scale[0] = scale[1] = GetF16(scales + b * 32, col);
        break;
      case ScaleKind::kHalfMin:
        scale[0] = scale[1] = GetF16(scales + b * 64, col);
        add = GetF16(scales + b * 64 + 32, col);
        break;
      case ScaleKind::kSuper:
        scale[0] = scale[1] = GetF16(super, col) * super[64 + j * 32 + col];
        add = -(GetF16(super + 32, col) * super[64 + j * 32 + 16 + col]);
        break;
      case ScaleKind::kSuper16:
        for (int h = 0; h < 2; ++h) {
          scale[h] = GetF16(super, col) * static_cast<int8_t>(super[32 + j * 32 + 16 * h + col]);
        }
        break;
    }
    const bool has_add = layout.scales == ScaleKind::kHalfMin || layout.scales == ScaleKind::kSuper;
    for (int k = 0; k < kQ8Block; ++k) {
      const float product =
          static_cast<float>(GetCode(layout.bits, from + b * layout.code_bytes(), col, k) - offset) * scale[k / 16];
      out[k] = has_add ? product + add : product;  // adding 0 would lose the sign of -0
    }
  }
}

}  // namespace weir::cpu
