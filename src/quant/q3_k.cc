// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q3_k.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeQ3_K(LoadBlock<BlockQ3_K>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  constexpr int kGroups = BlockQ3_K::kGroups;
  BlockQ3_K block = {};
  if (!FiniteValues(in, BlockQ3_K::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  float scales[kGroups];
  float peak = 0.0f;
  for (int g = 0; g < kGroups; ++g) {
    scales[g] = SearchSymmetricScale(in + g * BlockQ3_K::kGroupElements, BlockQ3_K::kGroupElements, 4);
    if (std::fabs(scales[g]) > std::fabs(peak)) peak = scales[g];
  }
  // The largest scale becomes -32, the one without an opposite.
  block.d = F32ToF16(peak / -32.0f);
  if (!IsFiniteF16(block.d)) return StoreBlock(block, bytes);
  const float d = F16ToF32(block.d);
  for (int g = 0; g < kGroups; ++g) {
    const int scale = RoundTo(scales[g] * InverseOrZero(d), -32, 31) + 32;
    block.scales[g % 8] |= static_cast<uint8_t>((scale & 0x0f) << (g / 8 * 4));
    block.scales[8 + g % 4] |= static_cast<uint8_t>((scale >> 4) << (g / 4 * 2));
  }
  for (int e = 0; e < BlockQ3_K::kElements; ++e) {
    const int scale = ScaleQ3_K(block.scales, e / BlockQ3_K::kGroupElements);
    const int code = RoundTo(in[e] * InverseOrZero(d * static_cast<float>(scale)), -4, 3) + 4;
    const int half = e / 128, quarter = e / BlockQ3_K::kQuarter % 4, i = e % BlockQ3_K::kQuarter;
    block.qs[half * 32 + i] |= static_cast<uint8_t>((code & 3) << (quarter * 2));
    block.hmask[i] |= static_cast<uint8_t>((code >> 2) << (half * 4 + quarter));
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockQ3_K>(row + b / 8 * static_cast<int64_t>(sizeof(BlockQ3_K)));
  CodeBlock out;
  const int first = static_cast<int>(b % 8) * kCodeBlock, g = first / BlockQ3_K::kGroupElements;
  for (int i = 0; i < kCodeBlock; ++i) out.code[i] = static_cast<uint8_t>(CodeQ3_K(block, first + i));
  out.sub[0] = static_cast<uint8_t>(ScaleQ3_K(block.scales, g));
  out.sub[1] = static_cast<uint8_t>(ScaleQ3_K(block.scales, g + 1));
  out.d = block.d;
  return out;
}

}  // namespace

const QuantFormat kQ3_KFormat = {
    .type = DType::kQ3_K,
    .info = {.name = "Q3_K",
             .gguf_number = 11,
             .block_elements = BlockQ3_K::kElements,
             .block_bytes = sizeof(BlockQ3_K)},
    .round_trip_error = 0.15,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ3_K, offsetof(BlockQ3_K, d)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
