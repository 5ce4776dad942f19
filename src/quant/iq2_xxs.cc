// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/iq2_xxs.h"

#include "quant/block.h"
#include "quant/grids.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) {
  const auto block = LoadBlock<BlockIQ2_XXS>(bytes);
  const float d = F16ToF32(block.d);
  for (const uint16_t(&q)[4] : block.qs) {
    const uint32_t points = q[0] | static_cast<uint32_t>(q[1]) << 16, word = q[2] | static_cast<uint32_t>(q[3]) << 16;
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
    for (int i = 0; i < 4; ++i, out += 8) {
      LoadPoint8(kIq2XxsGrid[(points >> (8 * i)) & 0xff], kIq2Levels, out);
      ScaleSigned(scale, EvenSigns(static_cast<int>(word >> (7 * i)) & 0x7f), 8, out);
    }
  }
}

}  // namespace

const QuantFormat kIQ2_XXSFormat = {
    .type = DType::kIQ2_XXS,
    .info = {.name = "IQ2_XXS",
             .gguf_number = 16,
             .block_elements = BlockIQ2_XXS::kElements,
             .block_bytes = sizeof(BlockIQ2_XXS)},
    .decode = Decode,
    .encode = nullptr,
    .finite = HalfScalesFinite<BlockIQ2_XXS, offsetof(BlockIQ2_XXS, d)>,
};

}  // namespace weir
