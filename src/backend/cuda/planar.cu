#include "backend/cuda/planar.h"

#include <cstring>

#include "base/workspace.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace weir::WEIR_GPU {
namespace {

// A block as the files hold it, taken apart.
struct Parts {
  uint8_t codes[kPlanarBlock] = {};  // all bits of them
  uint8_t sub[2] = {};
  uint16_t super[2] = {};
};

// Block `b` of a row.
Parts PartsOf(DType type, const uint8_t* row, int64_t b) {
  Parts out;
  const auto nibbles = [&](const uint8_t* qs) {
    for (int i = 0; i < 16; ++i) {
      out.codes[i] = qs[i] & 0x0f;
      out.codes[16 + i] = qs[i] >> 4;
    }
  };
  const auto fifth = [&](const uint8_t* qh) {
    for (int i = 0; i < kPlanarBlock; ++i) out.codes[i] |= static_cast<uint8_t>(((qh[i / 8] >> (i % 8)) & 1) << 4);
  };
  // Group g of a K block: its low nibbles, its scale and minimum.
  const auto group = [&](const auto& block, int g) {
    for (int i = 0; i < kPlanarBlock; ++i) out.codes[i] = (block.qs[g / 2 * 32 + i] >> (g % 2 * 4)) & 0x0f;
    const GroupScale pair = UnpackScale(block.scales, g);
    out.sub[0] = static_cast<uint8_t>(pair.scale);
    out.sub[1] = static_cast<uint8_t>(pair.min);
    out.super[0] = block.d;
    out.super[1] = block.dmin;
  };
  const int g = static_cast<int>(b % 8);
  switch (type) {
    case DType::kQ8_0: {
      const auto block = LoadBlock<BlockQ8_0>(row + b * static_cast<int64_t>(sizeof(BlockQ8_0)));
      std::memcpy(out.codes, block.qs, kPlanarBlock);
      out.super[0] = block.d;
      break;
    }
    case DType::kQ4_0: {
      const auto block = LoadBlock<BlockQ4_0>(row + b * static_cast<int64_t>(sizeof(BlockQ4_0)));
      nibbles(block.qs);
      out.super[0] = block.d;
      break;
    }
    case DType::kQ4_1: {
      const auto block = LoadBlock<BlockQ4_1>(row + b * static_cast<int64_t>(sizeof(BlockQ4_1)));
      nibbles(block.qs);
      out.super[0] = block.d;
      out.super[1] = block.m;
      break;
    }
    case DType::kQ5_0: {
      const auto block = LoadBlock<BlockQ5_0>(row + b * static_cast<int64_t>(sizeof(BlockQ5_0)));
      nibbles(block.qs);
      fifth(block.qh);
      out.super[0] = block.d;
      break;
    }
    case DType::kQ5_1: {
      const auto block = LoadBlock<BlockQ5_1>(row + b * static_cast<int64_t>(sizeof(BlockQ5_1)));
      nibbles(block.qs);
      fifth(block.qh);
      out.super[0] = block.d;
      out.super[1] = block.m;
      break;
    }
    case DType::kQ4_K:
      group(LoadBlock<BlockQ4_K>(row + b / 8 * static_cast<int64_t>(sizeof(BlockQ4_K))), g);
      break;
    case DType::kQ5_K: {
      const auto block = LoadBlock<BlockQ5_K>(row + b / 8 * static_cast<int64_t>(sizeof(BlockQ5_K)));
      group(block, g);
      for (int i = 0; i < kPlanarBlock; ++i) out.codes[i] |= static_cast<uint8_t>(((block.qh[i] >> g) & 1) << 4);
      break;
    }
    case DType::kQ6_K: {
      const auto block = LoadBlock<BlockQ6_K>(row + b / 8 * static_cast<int64_t>(sizeof(BlockQ6_K)));
      const int half = g / 4, quarter = g % 4;
      for (int i = 0; i < kPlanarBlock; ++i) {
        const int low = (block.ql[half * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4)) & 0x0f;
        const int high = (block.qh[half * 32 + i] >> (quarter * 2)) & 3;
        out.codes[i] = static_cast<uint8_t>(low | high << 4);
      }
      out.sub[0] = static_cast<uint8_t>(block.scales[2 * g]);
      out.sub[1] = static_cast<uint8_t>(block.scales[2 * g + 1]);
      out.super[0] = block.d;
      break;
    }
    default:
      break;
  }
  return out;
}

}  // namespace

PlanarLayout PlanarLayoutOf(DType type, int64_t n_out, int64_t n_in) {
  const PlanarFormat format = PlanarFormatOf(type);
  const int64_t n = n_out * (n_in / kPlanarBlock);
  PlanarLayout out;
  Workspace space(nullptr);
  const auto plane = [&space](int64_t bytes) {
    const int64_t at = space.used();
    space.Bytes(bytes);
    return at;
  };
  out.codes = plane(n * format.code_bytes);
  out.high = plane(n * format.high_bits * 4);
  out.sub = plane(n * format.sub_bytes);
  out.super = plane(n / format.super_blocks * format.super_halves * 2);
  out.bytes = space.used();
  return out;
}

Planar PlanarAt(const uint8_t* base, const PlanarLayout& layout, DType type, int64_t n_in) {
  const PlanarFormat format = PlanarFormatOf(type);
  Planar out;
  out.codes = base + layout.codes;
  out.high = format.high_bits > 0 ? base + layout.high : nullptr;
  out.sub = format.sub_bytes > 0 ? base + layout.sub : nullptr;
  out.super = reinterpret_cast<const uint16_t*>(base + layout.super);
  out.n_blocks = n_in / kPlanarBlock;
  return out;
}

void PackPlanarRow(DType type, const uint8_t* row, int64_t n_in, int64_t o, const PlanarLayout& layout, uint8_t* base) {
  const PlanarFormat format = PlanarFormatOf(type);
  const int64_t n_blocks = n_in / kPlanarBlock;
  for (int64_t b = 0; b < n_blocks; ++b) {
    const Parts parts = PartsOf(type, row, b);
    const int64_t at = o * n_blocks + b;
    uint8_t* codes = base + layout.codes + at * format.code_bytes;
    for (int i = 0; i < format.code_bytes; ++i) {
      codes[i] = format.code_bytes == 32 ? parts.codes[i]
                                         : static_cast<uint8_t>((parts.codes[i] & 0x0f) | parts.codes[16 + i] << 4);
    }
    uint8_t* high = base + layout.high + at * format.high_bits * 4;
    for (int i = 0; i < format.high_bits * 4; ++i) high[i] = 0;
    for (int i = 0; i < kPlanarBlock && format.high_bits > 0; ++i) {
      const int word = i / 4, byte = i % 4;
      const int to = format.high_bits == 1 ? byte : word / 4 * 4 + byte;
      const int shift = format.high_bits == 1 ? word : 2 * (word % 4);
      high[to] |= static_cast<uint8_t>(parts.codes[i] >> 4 << shift);
    }
    std::memcpy(base + layout.sub + at * format.sub_bytes, parts.sub, static_cast<size_t>(format.sub_bytes));
    if (b % format.super_blocks == 0) {
      std::memcpy(base + layout.super + at / format.super_blocks * format.super_halves * 2, parts.super,
                  static_cast<size_t>(format.super_halves) * 2);
    }
  }
}

}  // namespace weir::WEIR_GPU
