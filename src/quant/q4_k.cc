#include "quant/q4_k.h"

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeQ4_K(LoadBlock<BlockQ4_K>(bytes), out); }

void Encode(const float* in, uint8_t* bytes) {
  BlockQ4_K block = {};
  if (!FiniteValues(in, BlockQ4_K::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  const MinBlock found = SearchMinBlock(in, 15);
  block.d = found.d;
  block.dmin = found.dmin;
  std::memcpy(block.scales, found.scales, sizeof(block.scales));
  for (int g = 0; g < kMinGroups; ++g) {
    for (int i = 0; i < kMinGroupElements; ++i) {
      block.qs[g / 2 * kMinGroupElements + i] |=
          static_cast<uint8_t>(found.codes[g * kMinGroupElements + i] << (g % 2 * 4));
    }
  }
  StoreBlock(block, bytes);
}

}  // namespace

const QuantFormat kQ4_KFormat = {DType::kQ4_K,
                                 BlockQ4_K::kElements,
                                 sizeof(BlockQ4_K),
                                 Decode,
                                 Encode,
                                 HalfScalesFinite<BlockQ4_K, offsetof(BlockQ4_K, d), offsetof(BlockQ4_K, dmin)>};

}  // namespace weir
