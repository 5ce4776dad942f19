// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/iq4_xs.h"

#include <cmath>

#include "quant/level_search.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeIQ4_XS(LoadBlock<BlockIQ4_XS>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  constexpr int n = BlockIQ4_XS::kGroupElements, kGroups = BlockIQ4_XS::kGroups;
  BlockIQ4_XS block = {};
  if (!FiniteValues(in, BlockIQ4_XS::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  float scales[kGroups];
  float peak = 0.0f;
  for (int g = 0; g < kGroups; ++g) {
    scales[g] = SearchLevelScale(in + g * n, n, kIq4Levels);
    if (std::fabs(scales[g]) > std::fabs(peak)) peak = scales[g];
  }
  // The largest scale becomes -32, the one without an opposite.
  block.d = F32ToF16(peak / -32.0f);
  if (!IsFiniteF16(block.d)) return StoreBlock(block, bytes);
  const float d = F16ToF32(block.d);
  for (int g = 0; g < kGroups; ++g) {
    const int scale = RoundTo(scales[g] * InverseOrZero(d), -32, 31) + 32;
    block.scales_l[g / 2] |= static_cast<uint8_t>((scale & 0x0f) << (g % 2 * 4));
    block.scales_h |= static_cast<uint16_t>((scale >> 4) << (g * 2));
    const float inverse = InverseOrZero(d * static_cast<float>(scale - 32));
    for (int i = 0; i < n; ++i) {
      const int code = NearestLevel(kIq4Levels, in[g * n + i] * inverse);
      block.qs[g * n / 2 + i % (n / 2)] |= static_cast<uint8_t>(code << (i / (n / 2) * 4));
    }
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockIQ4_XS>(row + b / 8 * static_cast<int64_t>(sizeof(BlockIQ4_XS)));
  const auto g = static_cast<int>(b % 8);
  CodeBlock out;
  ReadNibbles(block.qs + g * BlockIQ4_XS::kGroupElements / 2, &out);
  out.d = block.d;
  out.sub[0] = static_cast<uint8_t>(ScaleIQ4_XS(block, g));
  return out;
}

}  // namespace

const QuantFormat kIQ4_XSFormat = {
    .type = DType::kIQ4_XS,
    .info = {.name = "IQ4_XS",
             .gguf_number = 23,
             .block_elements = BlockIQ4_XS::kElements,
             .block_bytes = sizeof(BlockIQ4_XS)},
    .round_trip_error = 0.076,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockIQ4_XS, offsetof(BlockIQ4_XS, d)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
