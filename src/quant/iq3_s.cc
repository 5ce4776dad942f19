// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/iq3_s.h"

#include "quant/block.h"
#include "quant/grids.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) {
  const auto block = LoadBlock<BlockIQ3_S>(bytes);
  const float d = F16ToF32(block.d);
  for (int i = 0; i < 64; ++i, out += 4) {
    const int s = (block.scales[i / 16] >> (i / 8 % 2 * 4)) & 0x0f;
    LoadPoint4(kIq3SGrid[block.qs[i] | ((block.qh[i / 8] >> (i % 8)) & 1) << 8], kIq3SLevels, out);
    ScaleSigned(d * static_cast<float>(1 + 2 * s), block.signs[i / 2] >> (i % 2 * 4), 4, out);
  }
}

}  // namespace

const QuantFormat kIQ3_SFormat = {
    .type = DType::kIQ3_S,
    .info = {.name = "IQ3_S",
             .gguf_number = 21,
             .block_elements = BlockIQ3_S::kElements,
             .block_bytes = sizeof(BlockIQ3_S)},
    .decode = Decode,
    .encode = nullptr,
    .finite = HalfScalesFinite<BlockIQ3_S, offsetof(BlockIQ3_S, d)>,
};

}  // namespace weir
