#include "quant/plain.h"

#include <limits>

#include "quant/block.h"

namespace weir {
namespace {

void DecodeF32(const uint8_t* bytes, float* out) { *out = LoadBlock<float>(bytes); }
void EncodeF32(const float* in, uint8_t* bytes) { StoreBlock(*in, bytes); }
void DecodeF16(const uint8_t* bytes, float* out) { *out = F16ToF32(LoadBlock<uint16_t>(bytes)); }
void EncodeF16(const float* in, uint8_t* bytes) { StoreBlock(F32ToF16(*in), bytes); }
void DecodeBF16(const uint8_t* bytes, float* out) { *out = BF16ToF32(LoadBlock<uint16_t>(bytes)); }
void EncodeBF16(const float* in, uint8_t* bytes) { StoreBlock(F32ToBF16(*in), bytes); }
void DecodeI32(const uint8_t* bytes, float* out) { *out = static_cast<float>(LoadBlock<int32_t>(bytes)); }
void EncodeI32(const float* in, uint8_t* bytes) {
  using Limits = std::numeric_limits<int32_t>;
  StoreBlock<int32_t>(TruncateTo(std::nearbyint(static_cast<double>(*in)), Limits::min(), Limits::max()), bytes);
}

// The largest magnitude of a run decides: a value is finite when its exponent bits are not all ones, that is, when its
// magnitude read as an integer is below that of infinity. A maximum vectorises; an early exit would not.
template <typename Bits, Bits kMagnitude, Bits kInfinity>
bool Finite(const uint8_t* bytes, int64_t n) {
  Bits peak = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Bits magnitude = LoadBlock<Bits>(bytes + i * static_cast<int64_t>(sizeof(Bits))) & kMagnitude;
    peak = magnitude > peak ? magnitude : peak;
  }
  return peak < kInfinity;
}

bool AlwaysFinite(const uint8_t* bytes, int64_t n) { return true; }

}  // namespace

const QuantFormat kF32Format = {DType::kF32, 1, 4, DecodeF32, EncodeF32, Finite<uint32_t, 0x7fffffffu, 0x7f800000u>};
const QuantFormat kF16Format = {DType::kF16, 1, 2, DecodeF16, EncodeF16, Finite<uint16_t, 0x7fff, 0x7c00>};
const QuantFormat kBF16Format = {DType::kBF16, 1, 2, DecodeBF16, EncodeBF16, Finite<uint16_t, 0x7fff, 0x7f80>};
const QuantFormat kI32Format = {DType::kI32, 1, 4, DecodeI32, EncodeI32, AlwaysFinite};

}  // namespace weir
