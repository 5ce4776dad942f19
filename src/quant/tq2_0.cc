// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/tq2_0.h"

#include "quant/block.h"
#include "quant/ternary.h"

namespace weir {
namespace {

int Place(int i) { return i / 128 * 32 + i % 32; }
int Shift(int i) { return i / 32 % 4 * 2; }

void Decode(const uint8_t* bytes, float* out) {
  const auto block = LoadBlock<BlockTQ2_0>(bytes);
  const float d = F16ToF32(block.d);
  for (int i = 0; i < BlockTQ2_0::kElements; ++i) {
    out[i] = d * static_cast<float>(((block.qs[Place(i)] >> Shift(i)) & 3) - 1);
  }
}

void Encode(const float* in, uint8_t* bytes) {
  BlockTQ2_0 block = {};
  const float inverse = TernaryScale(in, BlockTQ2_0::kElements, &block.d);
  for (int i = 0; i < BlockTQ2_0::kElements; ++i) {
    block.qs[Place(i)] |= static_cast<uint8_t>((RoundTo(in[i] * inverse, -1, 1) + 1) << Shift(i));
  }
  StoreBlock(block, bytes);
}

}  // namespace

const QuantFormat kTQ2_0Format = {
    .type = DType::kTQ2_0,
    .info = {.name = "TQ2_0",
             .gguf_number = 35,
             .block_elements = BlockTQ2_0::kElements,
             .block_bytes = sizeof(BlockTQ2_0)},
    .round_trip_error = 0.83,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockTQ2_0, offsetof(BlockTQ2_0, d)>,
};

}  // namespace weir
