// SPDX-License-Identifier: Apache-2.0
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

// The largest magnitude of a run decides: a value is finite when its exponent bits are not all ones, which is when its
// magnitude, read as an integer, is below that of infinity. A maximum vectorises; an early exit would not.
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

const QuantFormat kF32Format = {
    .type = DType::kF32,
    .info = {.name = "F32", .gguf_number = 0, .block_elements = 1, .block_bytes = 4},
    .round_trip_error = 0.0,
    .decode = DecodeF32,
    .encode = EncodeF32,
    .finite = Finite<uint32_t, 0x7fffffffu, 0x7f800000u>,
};

const QuantFormat kF16Format = {
    .type = DType::kF16,
    .info = {.name = "F16", .gguf_number = 1, .block_elements = 1, .block_bytes = 2},
    .round_trip_error = 2.2e-4,
    .decode = DecodeF16,
    .encode = EncodeF16,
    .finite = Finite<uint16_t, 0x7fff, 0x7c00>,
};

const QuantFormat kBF16Format = {
    .type = DType::kBF16,
    .info = {.name = "BF16", .gguf_number = 30, .block_elements = 1, .block_bytes = 2},
    .round_trip_error = 1.75e-3,
    .decode = DecodeBF16,
    .encode = EncodeBF16,
    .finite = Finite<uint16_t, 0x7fff, 0x7f80>,
};

const QuantFormat kI32Format = {
    .type = DType::kI32,
    .info = {.name = "I32", .gguf_number = 26, .block_elements = 1, .block_bytes = 4},
    .decode = DecodeI32,
    .encode = EncodeI32,
    .finite = AlwaysFinite,
};

}  // namespace weir
