#include "quant/format.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "quant/plain.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

namespace weir {
namespace {

// Stored bytes are little endian and read in place.
static_assert(std::endian::native == std::endian::little);

// In the order of DType.
const QuantFormat* const kFormats[] = {&kF32Format,  &kF16Format,  &kBF16Format, &kI32Format,
                                       &kQ8_0Format, &kQ4_0Format, &kQ4_1Format, &kQ5_0Format,
                                       &kQ5_1Format, &kQ4_KFormat, &kQ5_KFormat, &kQ6_KFormat};
static_assert(std::size(kFormats) == kNumDTypes);

}  // namespace

const QuantFormat& FormatOf(DType type) { return *kFormats[static_cast<int>(type)]; }

void DecodeRow(DType type, const uint8_t* row, int64_t n, float* out) {
  const QuantFormat& format = FormatOf(type);
  const int64_t whole = n / format.block_elements;
  for (int64_t i = 0; i < whole; ++i) {
    format.decode(row + i * format.block_bytes, out + i * format.block_elements);
  }
  if (const int64_t rest = n % format.block_elements; rest > 0) {
    float block[kMaxBlockElements];
    format.decode(row + whole * format.block_bytes, block);
    std::copy_n(block, rest, out + whole * format.block_elements);
  }
}

void EncodeRow(DType type, const float* in, int64_t n, uint8_t* out) {
  const QuantFormat& format = FormatOf(type);
  const int64_t whole = n / format.block_elements;
  for (int64_t i = 0; i < whole; ++i) {
    format.encode(in + i * format.block_elements, out + i * format.block_bytes);
  }
  if (const int64_t rest = n % format.block_elements; rest > 0) {
    float block[kMaxBlockElements] = {};
    std::copy_n(in + whole * format.block_elements, rest, block);
    format.encode(block, out + whole * format.block_bytes);
  }
}

bool AllFinite(DType type, const uint8_t* data, int64_t n) {
  const QuantFormat& format = FormatOf(type);
  return format.finite(data, n / format.block_elements);
}

}  // namespace weir
