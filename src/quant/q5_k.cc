// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q5_k.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeQ5_K(LoadBlock<BlockQ5_K>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ5_K block = {};
  if (!FiniteValues(in, BlockQ5_K::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  const MinBlock found = SearchMinBlock(in, 31);
  block.d = found.d;
  block.dmin = found.dmin;
  std::memcpy(block.scales, found.scales, sizeof(block.scales));
  for (int g = 0; g < kMinGroups; ++g) {
    for (int i = 0; i < kMinGroupElements; ++i) {
      const int code = found.codes[g * kMinGroupElements + i];
      block.qs[g / 2 * kMinGroupElements + i] |= static_cast<uint8_t>((code & 0x0f) << (g % 2 * 4));
      block.qh[i] |= static_cast<uint8_t>((code >> 4) << g);
    }
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockQ5_K>(row + b / 8 * static_cast<int64_t>(sizeof(BlockQ5_K)));
  CodeBlock out;
  const int g = static_cast<int>(b % kMinGroups);
  ReadMinGroup(block, g, &out);
  for (int i = 0; i < kCodeBlock; ++i) out.code[i] |= static_cast<uint8_t>((block.qh[i] >> g & 1) << 4);
  return out;
}

}  // namespace

const QuantFormat kQ5_KFormat = {
    .type = DType::kQ5_K,
    .info = {.name = "Q5_K",
             .gguf_number = 13,
             .block_elements = BlockQ5_K::kElements,
             .block_bytes = sizeof(BlockQ5_K)},
    .round_trip_error = 0.0364,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ5_K, offsetof(BlockQ5_K, d), offsetof(BlockQ5_K, dmin)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
