// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/planar.h"

#include <cstring>

#include "base/workspace.h"
#include "quant/format.h"

namespace weir::WEIR_GPU {

static_assert(kPlanarBlock == kCodeBlock);

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
  const auto read_codes = FormatOf(type).read_codes;
  const int64_t n_blocks = n_in / kPlanarBlock;
  for (int64_t b = 0; b < n_blocks; ++b) {
    const CodeBlock block = read_codes(row, b);
    const int64_t at = o * n_blocks + b;
    uint8_t* codes = base + layout.codes + at * format.code_bytes;
    for (int i = 0; i < format.code_bytes; ++i) {
      codes[i] = format.code_bytes == 32 ? block.code[i] ^ 0x80  // its offset is 128
                                         : static_cast<uint8_t>((block.code[i] & 0x0f) | block.code[16 + i] << 4);
    }
    uint8_t* high = base + layout.high + at * format.high_bits * 4;
    for (int i = 0; i < format.high_bits * 4; ++i) high[i] = 0;
    for (int i = 0; i < kPlanarBlock && format.high_bits > 0; ++i) {
      const int word = i / 4, byte = i % 4;
      const int to = format.high_bits == 1 ? byte : word / 4 * 4 + byte;
      const int shift = format.high_bits == 1 ? word : 2 * (word % 4);
      high[to] |= static_cast<uint8_t>(block.code[i] >> 4 << shift);
    }
    std::memcpy(base + layout.sub + at * format.sub_bytes, block.sub, static_cast<size_t>(format.sub_bytes));
    if (b % format.super_blocks == 0) {
      const uint16_t super[2] = {block.d, block.m};
      std::memcpy(base + layout.super + at / format.super_blocks * format.super_halves * 2, super,
                  static_cast<size_t>(format.super_halves) * 2);
    }
  }
}

}  // namespace weir::WEIR_GPU
