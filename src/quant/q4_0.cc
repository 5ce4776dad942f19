// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q4_0.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeQ4_0(LoadBlock<BlockQ4_0>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ4_0 block = {};
  if (!FiniteValues(in, BlockQ4_0::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  // The value of largest magnitude gets code 0 = -8 steps, the only code without an opposite.
  float peak = 0.0f;
  for (int i = 0; i < BlockQ4_0::kElements; ++i) {
    if (std::fabs(in[i]) > std::fabs(peak)) peak = in[i];
  }
  const float d = peak / -8.0f;
  const float inverse = InverseOrZero(d);
  block.d = F32ToF16(d);
  // The product is computed in double: fused or not, it rounds the same on every machine.
  const auto code = [&](float x) { return TruncateTo(static_cast<double>(x) * inverse + 8.5, 0, 15); };
  for (int i = 0; i < BlockQ4_0::kElements / 2; ++i) {
    block.qs[i] = static_cast<uint8_t>(code(in[i]) | code(in[i + BlockQ4_0::kElements / 2]) << 4);
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockQ4_0>(row + b * static_cast<int64_t>(sizeof(BlockQ4_0)));
  CodeBlock out;
  ReadNibbles(block.qs, &out);
  out.d = block.d;
  return out;
}

}  // namespace

const QuantFormat kQ4_0Format = {
    .type = DType::kQ4_0,
    .info = {.name = "Q4_0",
             .gguf_number = 2,
             .block_elements = BlockQ4_0::kElements,
             .block_bytes = sizeof(BlockQ4_0)},
    .round_trip_error = 0.090,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ4_0, offsetof(BlockQ4_0, d)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
