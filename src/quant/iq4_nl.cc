// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/iq4_nl.h"

#include "quant/level_search.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeIQ4_NL(LoadBlock<BlockIQ4_NL>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  constexpr int n = BlockIQ4_NL::kElements;
  BlockIQ4_NL block = {};
  block.d = FiniteValues(in, n) ? F32ToF16(SearchLevelScale(in, n, kIq4Levels)) : kHalfNan;
  if (!IsFiniteF16(block.d)) return StoreBlock(block, bytes);
  const float inverse = InverseOrZero(F16ToF32(block.d));
  for (int i = 0; i < n; ++i) {
    block.qs[i % (n / 2)] |= static_cast<uint8_t>(NearestLevel(kIq4Levels, in[i] * inverse) << (i / (n / 2) * 4));
  }
  StoreBlock(block, bytes);
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockIQ4_NL>(row + b * static_cast<int64_t>(sizeof(BlockIQ4_NL)));
  CodeBlock out;
  ReadNibbles(block.qs, &out);
  out.d = block.d;
  return out;
}

}  // namespace

const QuantFormat kIQ4_NLFormat = {
    .type = DType::kIQ4_NL,
    .info = {.name = "IQ4_NL",
             .gguf_number = 20,
             .block_elements = BlockIQ4_NL::kElements,
             .block_bytes = sizeof(BlockIQ4_NL)},
    .round_trip_error = 0.0752,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockIQ4_NL, offsetof(BlockIQ4_NL, d)>,
    .read_codes = ReadCodes,
};

}  // namespace weir
