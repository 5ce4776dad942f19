// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/iq2_xs.h"

#include "quant/block.h"
#include "quant/grids.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) {
  const auto block = LoadBlock<BlockIQ2_XS>(bytes);
  const float d = F16ToF32(block.d);
  for (int i = 0; i < 32; ++i, out += 8) {
    const int s = (block.scales[i / 4] >> (i / 2 % 2 * 4)) & 0x0f;
    LoadPoint8(kIq2XsGrid[block.qs[i] & 0x1ff], kIq2Levels, out);
    ScaleSigned(d * (0.5f + static_cast<float>(s)) * 0.25f, EvenSigns(block.qs[i] >> 9), 8, out);
  }
}

}  // namespace

const QuantFormat kIQ2_XSFormat = {
    .type = DType::kIQ2_XS,
    .info = {.name = "IQ2_XS",
             .gguf_number = 17,
             .block_elements = BlockIQ2_XS::kElements,
             .block_bytes = sizeof(BlockIQ2_XS)},
    .decode = Decode,
    .encode = nullptr,
    .finite = HalfScalesFinite<BlockIQ2_XS, offsetof(BlockIQ2_XS, d)>,
};

}  // namespace weir
