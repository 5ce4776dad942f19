// weir-plugin: weights
// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/coded_weights.h"

#include <cstring>

#include "backend/cpu/unroll.h"
#include "quant/format.h"
#include "quant/half.h"

namespace weir::cpu {
namespace {

static_assert(kCodeBlock == kQ8Block);

Suits Suit(DType type) { return CodesOf(type).has_codes() ? Suits::kFamily : Suits::kNot; }

int64_t PanelBytes(DType type, int64_t n_in) {
  const PackLayout layout = LayoutOf(type);
  const int64_t n_blocks = n_in / kCodeBlock;
  return (n_blocks * layout.code_bytes() + layout.scale_bytes(n_blocks) + 63) / 64 * 64;
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
  for (int k = 0; k < kCodeBlock; ++k) {
    const int group = k / 4, byte = 4 * col + k % 4;
    if (bits == 5) {
      out[256 + byte] |= static_cast<uint8_t>((code[k] >> 4) << group);
    } else {
      out[256 + group / 4 * 64 + byte] |= static_cast<uint8_t>((code[k] >> 4) << (2 * (group % 4)));
    }
  }
}

void PutU16(uint8_t* at, int col, uint16_t value) { std::memcpy(at + 2 * col, &value, 2); }
float GetF16(const uint8_t* at, int col) {
  uint16_t bits;
  std::memcpy(&bits, at + 2 * col, 2);
  return F16ToF32(bits);
}

// Pack() for blocks of 32 whose bytes lie in a panel's order but for their place: a start of a program waits for it,
// and taking the codes apart takes several times as long as reading them. kFlip: what codes of 8 bits differ by.
template <class Block, uint32_t kFlip>
void CopyBlocks(const uint8_t* row, int64_t n_blocks, int col, uint8_t* panel) {
  constexpr PackLayout kLayout = {Block::kCodes};
  static_assert(sizeof(Block::qs) * 16 == kLayout.code_bytes());
  uint8_t* scales = panel + n_blocks * kLayout.code_bytes() + 2 * col;
  for (uint8_t* codes = panel + 4 * col; n_blocks > 0; --n_blocks, row += sizeof(Block)) {
    const auto block = LoadBlock<Block>(row);
    WEIR_UNROLL
    for (size_t at = 0; at < sizeof(block.qs); at += 4, codes += 64) {
      uint32_t four;
      std::memcpy(&four, block.qs + at, 4);
      four ^= kFlip;
      std::memcpy(codes, &four, 4);
    }
    std::memcpy(scales, &block.d, 2);
    if constexpr (kLayout.scales == ScaleKind::kHalfMin) std::memcpy(scales + 32, &block.m, 2);
    scales += kLayout.own_bytes();
  }
}

void Pack(DType type, const uint8_t* row, int64_t n_in, int col, uint8_t* panel) {
  if (type == DType::kQ8_0) return CopyBlocks<BlockQ8_0, 0x80808080>(row, n_in / kCodeBlock, col, panel);
  if (type == DType::kQ4_0) return CopyBlocks<BlockQ4_0, 0>(row, n_in / kCodeBlock, col, panel);
  if (type == DType::kQ4_1) return CopyBlocks<BlockQ4_1, 0>(row, n_in / kCodeBlock, col, panel);
  const QuantFormat& format = FormatOf(type);
  const PackLayout layout = LayoutOf(type);
  const int64_t n_blocks = n_in / kCodeBlock;
  uint8_t* scales = panel + n_blocks * layout.code_bytes();
  for (int64_t b = 0; b < n_blocks; ++b) {
    const CodeBlock block = format.read_codes(row, b);
    PutCodes(layout.bits, block.code, col, panel + b * layout.code_bytes());
    uint8_t* super = scales + b / kSuperBlocks * layout.super_bytes();
    const int64_t j = b % kSuperBlocks;
    switch (layout.scales) {
      case ScaleKind::kHalf:
        PutU16(scales + b * 32, col, block.d);
        break;
      case ScaleKind::kHalfMin:
      case ScaleKind::kHalves:
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
      case ScaleKind::kSuper32:
        PutU16(super, col, block.d);
        super[32 + j * 16 + col] = block.sub[0];
        break;
      case ScaleKind::kPower:
        scales[b * 16 + col] = block.sub[0];
        break;
    }
  }
}

void Decode(DType type, const uint8_t* panel, int64_t n_in, int col, float* out) {
  const PackLayout layout = LayoutOf(type);
  const int64_t n_blocks = n_in / kCodeBlock;
  const uint8_t* scales = panel + n_blocks * layout.code_bytes();
  for (int64_t b = 0; b < n_blocks; ++b, out += kCodeBlock) {
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
      case ScaleKind::kSuper32:
        scale[0] = scale[1] = GetF16(super, col) * static_cast<int8_t>(super[32 + j * 16 + col]);
        break;
      case ScaleKind::kHalves:
        for (int h = 0; h < 2; ++h) scale[h] = GetF16(scales + b * 64 + 32 * h, col);
        break;
      case ScaleKind::kPower:
        scale[0] = scale[1] = PowerScale(scales[b * 16 + col]);
        break;
    }
    for (int k = 0; k < kCodeBlock; ++k) {
      const float product =
          static_cast<float>(GetCode(UnpackedBits(layout), panel + b * layout.code_bytes(), col, k) - layout.offset()) *
          scale[k / 16];
      out[k] = layout.has_addend() ? product + add : product;  // adding 0 would lose the sign of -0
    }
  }
}

}  // namespace

extern const WeightsInfo kCodedWeights;
const WeightsInfo kCodedWeights = {
    .suits = Suit,
    .panel_bytes = PanelBytes,
    .pack = Pack,
    .decode = Decode,
    .product = CodedProduct,
};

}  // namespace weir::cpu
