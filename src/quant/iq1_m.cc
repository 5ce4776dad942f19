// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/iq1_m.h"

#include "quant/block.h"
#include "quant/grids.h"

namespace weir {
namespace {

uint16_t ScaleBits(const BlockIQ1_M& block) {
  uint16_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<uint16_t>(block.scales[i] >> 12 << (4 * i));
  return bits;
}

void Decode(const uint8_t* bytes, float* out) {
  const auto block = LoadBlock<BlockIQ1_M>(bytes);
  const float d = F16ToF32(ScaleBits(block));
  for (int i = 0; i < 32; ++i, out += 8) {
    const int qh = block.qh[i / 2] >> (i % 2 * 4), s = (block.scales[i / 8] >> (i / 2 % 4 * 3)) & 7;
    const float scale = d * static_cast<float>(2 * s + 1);
    LoadPoint8(kIq1Grid[block.qs[i] | (qh & 7) << 8], kIq1Levels, out);
    const float shift = (qh & 8) != 0 ? -kIq1Shift : kIq1Shift;
    for (int j = 0; j < 8; ++j) out[j] = scale * (out[j] + shift);
  }
}

bool Finite(const uint8_t* blocks, int64_t n_blocks) {
  bool finite = true;
  for (int64_t i = 0; i < n_blocks; ++i, blocks += sizeof(BlockIQ1_M)) {
    finite &= IsFiniteF16(ScaleBits(LoadBlock<BlockIQ1_M>(blocks)));
  }
  return finite;
}

}  // namespace

const QuantFormat kIQ1_MFormat = {
    .type = DType::kIQ1_M,
    .info = {.name = "IQ1_M",
             .gguf_number = 29,
             .block_elements = BlockIQ1_M::kElements,
             .block_bytes = sizeof(BlockIQ1_M)},
    .decode = Decode,
    .encode = nullptr,
    .finite = Finite,
};

}  // namespace weir
