// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/tq1_0.h"

#include "quant/block.h"
#include "quant/ternary.h"

namespace weir {
namespace {

struct Part {  // bytes that are read side by side
  int first_byte, n_bytes, n_digits, first_value;
};
constexpr Part kParts[] = {{0, 32, 5, 0}, {32, 16, 5, 160}, {48, 4, 4, 240}};

void Decode(const uint8_t* bytes, float* out) {
  const float d = F16ToF32(LoadBlock<BlockTQ1_0>(bytes).d);
  for (const Part& part : kParts) {
    for (int m = 0; m < part.n_bytes; ++m) {
      uint8_t q = bytes[part.first_byte + m];  // qs and qh are adjacent
      for (int n = 0; n < part.n_digits; ++n, q = static_cast<uint8_t>(q * 3)) {
        out[part.first_value + n * part.n_bytes + m] = d * static_cast<float>((q * 3 >> 8) - 1);
      }
    }
  }
}

void Encode(const float* in, uint8_t* bytes) {
  BlockTQ1_0 block = {};
  const float inverse = TernaryScale(in, BlockTQ1_0::kElements, &block.d);
  StoreBlock(block, bytes);
  for (const Part& part : kParts) {
    for (int m = 0; m < part.n_bytes; ++m) {
      int number = 0;
      for (int n = 0; n < 5; ++n) {
        const float x = n < part.n_digits ? in[part.first_value + n * part.n_bytes + m] * inverse : -1.0f;
        number = number * 3 + RoundTo(x, -1, 1) + 1;
      }
      bytes[part.first_byte + m] = static_cast<uint8_t>((number * 256 + 242) / 243);
    }
  }
}

}  // namespace

const QuantFormat kTQ1_0Format = {
    .type = DType::kTQ1_0,
    .info = {.name = "TQ1_0",
             .gguf_number = 34,
             .block_elements = BlockTQ1_0::kElements,
             .block_bytes = sizeof(BlockTQ1_0)},
    .round_trip_error = 0.83,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockTQ1_0, offsetof(BlockTQ1_0, d)>,
};

}  // namespace weir
