#include "quant/q8_0.h"

#include <algorithm>

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeQ8_0(LoadBlock<BlockQ8_0>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ8_0 block = {};
  if (!FiniteValues(in, BlockQ8_0::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  float peak = 0.0f;
  for (int i = 0; i < BlockQ8_0::kElements; ++i) peak = std::max(peak, std::fabs(in[i]));
  const float d = peak / 127.0f;
  // Codes come from the unrounded scale, as the reference encoder does it.
  const float inverse = InverseOrZero(d);
  block.d = F32ToF16(d);
  for (int i = 0; i < BlockQ8_0::kElements; ++i) {
    block.qs[i] = static_cast<int8_t>(RoundTo(in[i] * inverse, -127, 127));
  }
  StoreBlock(block, bytes);
}

}  // namespace

const QuantFormat kQ8_0Format = {DType::kQ8_0,
                                 BlockQ8_0::kElements,
                                 sizeof(BlockQ8_0),
                                 Decode,
                                 Encode,
                                 HalfScalesFinite<BlockQ8_0, offsetof(BlockQ8_0, d)>};

}  // namespace weir
