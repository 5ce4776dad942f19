// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q4_1.h"

#include <algorithm>

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeQ4_1(LoadBlock<BlockQ4_1>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ4_1 block = {};
  if (!FiniteValues(in, BlockQ4_1::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  const auto [low, high] = std::minmax_element(in, in + BlockQ4_1::kElements);
  const float min = *low;
  const float d = (*high - min) / 15.0f;
  const float inverse = InverseOrZero(d);
  block.d = F32ToF16(d);
  block.m = F32ToF16(min);
  const auto code = [&](float x) { return TruncateTo((x - min) * inverse + 0.5f, 0, 15); };
  for (int i = 0; i < BlockQ4_1::kElements / 2; ++i) {
    block.qs[i] = static_cast<uint8_t>(code(in[i]) | code(in[i + BlockQ4_1::kElements / 2]) << 4);
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockQ4_1>(row + b * static_cast<int64_t>(sizeof(BlockQ4_1)));
  CodeBlock out;
  ReadNibbles(block.qs, &out);
  out.d = block.d;
  out.m = block.m;
  return out;
}

}  // namespace

const QuantFormat kQ4_1Format = {
    .type = DType::kQ4_1,
    .info = {.name = "Q4_1",
             .gguf_number = 3,
             .block_elements = BlockQ4_1::kElements,
             .block_bytes = sizeof(BlockQ4_1)},
    .round_trip_error = 0.082,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ4_1, offsetof(BlockQ4_1, d), offsetof(BlockQ4_1, m)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
