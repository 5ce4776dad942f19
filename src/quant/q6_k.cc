// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q6_k.h"

namespace weir {
namespace {

constexpr int kGroups = BlockQ6_K::kElements / BlockQ6_K::kGroupElements;

void Decode(const uint8_t* bytes, float* out) { DecodeQ6_K(LoadBlock<BlockQ6_K>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ6_K block = {};
  if (!FiniteValues(in, BlockQ6_K::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  float scales[kGroups];
  float peak = 0.0f;
  for (int g = 0; g < kGroups; ++g) {
    scales[g] = SearchSymmetricScale(in + g * BlockQ6_K::kGroupElements, BlockQ6_K::kGroupElements, 32);
    if (std::fabs(scales[g]) > std::fabs(peak)) peak = scales[g];
  }
  // The largest scale becomes -128, the one code without an opposite.
  block.d = F32ToF16(peak / -128.0f);
  if (!IsFiniteF16(block.d)) return StoreBlock(block, bytes);
  const float d = F16ToF32(block.d);
  for (int g = 0; g < kGroups; ++g)
    block.scales[g] = static_cast<int8_t>(RoundTo(scales[g] * InverseOrZero(d), -128, 127));
  for (int e = 0; e < BlockQ6_K::kElements; ++e) {
    const float inverse = InverseOrZero(d * static_cast<float>(block.scales[e / BlockQ6_K::kGroupElements]));
    const int code = RoundTo(in[e] * inverse, -32, 31) + 32;
    const int half = e / 128;
    const int quarter = e / BlockQ6_K::kQuarter % 4;
    const int i = e % BlockQ6_K::kQuarter;
    block.ql[half * 64 + quarter % 2 * BlockQ6_K::kQuarter + i] |=
        static_cast<uint8_t>((code & 0x0f) << (quarter / 2 * 4));
    block.qh[half * 32 + i] |= static_cast<uint8_t>((code >> 4) << (quarter * 2));
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockQ6_K>(row + b / 8 * static_cast<int64_t>(sizeof(BlockQ6_K)));
  CodeBlock out;
  const int g = static_cast<int>(b % 8), half = g / 4, quarter = g % 4;
  const uint8_t* ql = block.ql + half * 64 + quarter % 2 * BlockQ6_K::kQuarter;
  const uint8_t* qh = block.qh + half * 32;
  for (int i = 0; i < kCodeBlock; ++i) {
    const int low = (ql[i] >> (quarter / 2 * 4)) & 0x0f;
    out.code[i] = static_cast<uint8_t>(low | ((qh[i] >> (quarter * 2)) & 3) << 4);
  }
  out.sub[0] = static_cast<uint8_t>(block.scales[2 * g]);
  out.sub[1] = static_cast<uint8_t>(block.scales[2 * g + 1]);
  out.d = block.d;
  return out;
}

}  // namespace

const QuantFormat kQ6_KFormat = {
    .type = DType::kQ6_K,
    .info = {.name = "Q6_K",
             .gguf_number = 14,
             .block_elements = BlockQ6_K::kElements,
             .block_bytes = sizeof(BlockQ6_K)},
    .round_trip_error = 0.0183,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ6_K, offsetof(BlockQ6_K, d)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
