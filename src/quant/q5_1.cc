// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q5_1.h"

#include <algorithm>

namespace weir {
namespace {

constexpr int kHalf = BlockQ5_1::kElements / 2;

void Decode(const uint8_t* bytes, float* out) { DecodeQ5_1(LoadBlock<BlockQ5_1>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ5_1 block = {};
  if (!FiniteValues(in, BlockQ5_1::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  const auto [low, high] = std::minmax_element(in, in + BlockQ5_1::kElements);
  const float min = *low;
  const float d = (*high - min) / 31.0f;
  const float inverse = InverseOrZero(d);
  block.d = F32ToF16(d);
  block.m = F32ToF16(min);
  for (int i = 0; i < BlockQ5_1::kElements; ++i) {
    const int code = TruncateTo((in[i] - min) * inverse + 0.5f, 0, 31);
    block.qs[i % kHalf] |= static_cast<uint8_t>((code & 0x0f) << (i < kHalf ? 0 : 4));
    block.qh[i / 8] |= static_cast<uint8_t>((code >> 4) << (i % 8));
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockQ5_1>(row + b * static_cast<int64_t>(sizeof(BlockQ5_1)));
  CodeBlock out;
  ReadNibbles(block.qs, &out);
  ReadFifthBits(block.qh, &out);
  out.d = block.d;
  out.m = block.m;
  return out;
}

}  // namespace

const QuantFormat kQ5_1Format = {
    .type = DType::kQ5_1,
    .info = {.name = "Q5_1",
             .gguf_number = 7,
             .block_elements = BlockQ5_1::kElements,
             .block_bytes = sizeof(BlockQ5_1)},
    .round_trip_error = 0.0397,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ5_1, offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
