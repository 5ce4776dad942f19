// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/iq2_s.h"

#include "quant/block.h"
#include "quant/grids.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) {
  const auto block = LoadBlock<BlockIQ2_S>(bytes);
  const float d = F16ToF32(block.d);
  for (int i = 0; i < 32; ++i, out += 8) {
    const int s = (block.scales[i / 4] >> (i / 2 % 2 * 4)) & 0x0f;
    LoadPoint8(kIq2SGrid[block.qs[i] | ((block.qh[i / 4] >> (i % 4 * 2)) & 3) << 8], kIq2Levels, out);
    ScaleSigned(d * (0.5f + static_cast<float>(s)) * 0.25f, block.signs[i], 8, out);
  }
}

}  // namespace

const QuantFormat kIQ2_SFormat = {
    .type = DType::kIQ2_S,
    .info = {.name = "IQ2_S",
             .gguf_number = 22,
             .block_elements = BlockIQ2_S::kElements,
             .block_bytes = sizeof(BlockIQ2_S)},
    .decode = Decode,
    .encode = nullptr,
    .finite = HalfScalesFinite<BlockIQ2_S, offsetof(BlockIQ2_S, d)>,
};

}  // namespace weir
