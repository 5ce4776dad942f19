// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q8_0.h"

#include <algorithm>

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeQ8_0(LoadBlock<BlockQ8_0>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ8_0 block = {};
  if (!FiniteValues(in, BlockQ8_0::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  float peak = 0.0f;
  for (int i = 0; i < BlockQ8_0::kElements; ++i) peak = std::max(peak, std::fabs(in[i]));
  const float d = peak / 127.0f;
  // Codes are computed from the unrounded scale, as in the reference encoder.
  const float inverse = InverseOrZero(d);
  block.d = F32ToF16(d);
  for (int i = 0; i < BlockQ8_0::kElements; ++i) {
    block.qs[i] = static_cast<int8_t>(RoundTo(in[i] * inverse, -127, 127));
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockQ8_0>(row + b * static_cast<int64_t>(sizeof(BlockQ8_0)));
  CodeBlock out;
  for (int i = 0; i < kCodeBlock; ++i) out.code[i] = static_cast<uint8_t>(block.qs[i]) ^ 0x80;  // + 128
  out.d = block.d;
  return out;
}

}  // namespace

const QuantFormat kQ8_0Format = {
    .type = DType::kQ8_0,
    .info = {.name = "Q8_0",
             .gguf_number = 8,
             .block_elements = BlockQ8_0::kElements,
             .block_bytes = sizeof(BlockQ8_0)},
    .round_trip_error = 5.6e-3,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ8_0, offsetof(BlockQ8_0, d)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
