// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q4_k.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeQ4_K(LoadBlock<BlockQ4_K>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ4_K block = {};
  if (!FiniteValues(in, BlockQ4_K::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  const MinBlock found = SearchMinBlock(in, 15);
  block.d = found.d;
  block.dmin = found.dmin;
  std::memcpy(block.scales, found.scales, sizeof(block.scales));
  for (int g = 0; g < kMinGroups; ++g) {
    for (int i = 0; i < kMinGroupElements; ++i) {
      block.qs[g / 2 * kMinGroupElements + i] |=
          static_cast<uint8_t>(found.codes[g * kMinGroupElements + i] << (g % 2 * 4));
    }
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockQ4_K>(row + b / 8 * static_cast<int64_t>(sizeof(BlockQ4_K)));
  CodeBlock out;
  const int g = static_cast<int>(b % kMinGroups);
  ReadMinGroup(block, g, &out);
  return out;
}

}  // namespace

const QuantFormat kQ4_KFormat = {
    .type = DType::kQ4_K,
    .info = {.name = "Q4_K",
             .gguf_number = 12,
             .block_elements = BlockQ4_K::kElements,
             .block_bytes = sizeof(BlockQ4_K)},
    .round_trip_error = 0.074,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ4_K, offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
