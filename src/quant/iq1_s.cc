// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/iq1_s.h"

#include "quant/block.h"
#include "quant/grids.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) {
  const auto block = LoadBlock<BlockIQ1_S>(bytes);
  const float d = F16ToF32(block.d);
  for (int i = 0; i < 32; ++i, out += 8) {
    const int qh = block.qh[i / 4];
    const float scale = d * static_cast<float>(2 * ((qh >> 12) & 7) + 1);
    LoadPoint8(kIq1Grid[block.qs[i] | ((qh >> (i % 4 * 3)) & 7) << 8], kIq1Levels, out);
    const float shift = (qh & 0x8000) != 0 ? -kIq1Shift : kIq1Shift;
    for (int j = 0; j < 8; ++j) out[j] = scale * (out[j] + shift);
  }
}

}  // namespace

const QuantFormat kIQ1_SFormat = {
    .type = DType::kIQ1_S,
    .info = {.name = "IQ1_S",
             .gguf_number = 19,
             .block_elements = BlockIQ1_S::kElements,
             .block_bytes = sizeof(BlockIQ1_S)},
    .decode = Decode,
    .encode = nullptr,
    .finite = HalfScalesFinite<BlockIQ1_S, offsetof(BlockIQ1_S, d)>,
};

}  // namespace weir
