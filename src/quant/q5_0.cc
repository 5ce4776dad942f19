// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q5_0.h"

namespace weir {
namespace {

constexpr int kHalf = BlockQ5_0::kElements / 2;

void Decode(const uint8_t* bytes, float* out) { DecodeQ5_0(LoadBlock<BlockQ5_0>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ5_0 block = {};
  if (!FiniteValues(in, BlockQ5_0::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  // As in Q4_0: the value of largest magnitude gets code 0 = -16 steps.
  float peak = 0.0f;
  for (int i = 0; i < BlockQ5_0::kElements; ++i) {
    if (std::fabs(in[i]) > std::fabs(peak)) peak = in[i];
  }
  const float d = peak / -16.0f;
  const float inverse = InverseOrZero(d);
  block.d = F32ToF16(d);
  for (int i = 0; i < BlockQ5_0::kElements; ++i) {
    const int code = TruncateTo(static_cast<double>(in[i]) * inverse + 16.5, 0, 31);
    block.qs[i % kHalf] |= static_cast<uint8_t>((code & 0x0f) << (i < kHalf ? 0 : 4));
    block.qh[i / 8] |= static_cast<uint8_t>((code >> 4) << (i % 8));
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockQ5_0>(row + b * static_cast<int64_t>(sizeof(BlockQ5_0)));
  CodeBlock out;
  ReadNibbles(block.qs, &out);
  ReadFifthBits(block.qh, &out);
  out.d = block.d;
  return out;
}

}  // namespace

const QuantFormat kQ5_0Format = {
    .type = DType::kQ5_0,
    .info = {.name = "Q5_0",
             .gguf_number = 6,
             .block_elements = BlockQ5_0::kElements,
             .block_bytes = sizeof(BlockQ5_0)},
    .round_trip_error = 0.0445,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ5_0, offsetof(BlockQ5_0, d)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
