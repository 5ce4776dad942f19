// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/iq3_xxs.h"

#include "quant/block.h"
#include "quant/grids.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) {
  const auto block = LoadBlock<BlockIQ3_XXS>(bytes);
  const float d = F16ToF32(block.d);
  for (int i = 0; i < 32; ++i, out += 8) {
    const uint32_t word = block.words[i / 4][0] | static_cast<uint32_t>(block.words[i / 4][1]) << 16;
    LoadPoint4(kIq3XxsGrid[block.qs[2 * i]], kIq3XxsLevels, out);
    LoadPoint4(kIq3XxsGrid[block.qs[2 * i + 1]], kIq3XxsLevels, out + 4);
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    ScaleSigned(scale, EvenSigns(static_cast<int>(word >> (i % 4 * 7)) & 0x7f), 8, out);
  }
}

}  // namespace

const QuantFormat kIQ3_XXSFormat = {
    .type = DType::kIQ3_XXS,
    .info = {.name = "IQ3_XXS",
             .gguf_number = 18,
             .block_elements = BlockIQ3_XXS::kElements,
             .block_bytes = sizeof(BlockIQ3_XXS)},
    .decode = Decode,
    .encode = nullptr,
    .finite = HalfScalesFinite<BlockIQ3_XXS, offsetof(BlockIQ3_XXS, d)>,
};

}  // namespace weir
