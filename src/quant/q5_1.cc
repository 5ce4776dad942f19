#include "quant/q5_1.h"

#include <algorithm>

namespace weir {
namespace {

constexpr int kHalf = BlockQ5_1::kElements / 2;

void Decode(const uint8_t* bytes, float* out) { DecodeQ5_1(LoadBlock<BlockQ5_1>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ5_1 block = {};
  if (!FiniteValues(in, BlockQ5_1::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  const auto [low, high] = std::minmax_element(in, in + BlockQ5_1::kElements);
  const float min = *low;
  const float d = (*high - min) / 31.0f;
  const float inverse = InverseOrZero(d);
  block.d = F32ToF16(d);
  block.m = F32ToF16(min);
  for (int i = 0; i < BlockQ5_1::kElements; ++i) {
    const int code = TruncateTo((in[i] - min) * inverse + 0.5f, 0, 31);
    block.qs[i % kHalf] |= static_cast<uint8_t>((code & 0x0f) << (i < kHalf ? 0 : 4));
    block.qh[i / 8] |= static_cast<uint8_t>((code >> 4) << (i % 8));
  }
  StoreBlock(block, bytes);
}

}  // namespace

const QuantFormat kQ5_1Format = {DType::kQ5_1,
                                 BlockQ5_1::kElements,
                                 sizeof(BlockQ5_1),
                                 Decode,
                                 Encode,
                                 HalfScalesFinite<BlockQ5_1, offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m)>};

}  // namespace weir
