// SPDX-License-Identifier: Apache-2.0
#include "quant/format.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "quant/block_formats.h"
#include "quant/plain.h"

namespace weir {
namespace {

// Stored bytes are little endian and read in place.
static_assert(std::endian::native == std::endian::little);

// In the order of DType.
const QuantFormat* const kFormats[] = {&kF32Format, &kF16Format, &kBF16Format, &kI32Format, WEIR_BLOCK_FORMATS};
static_assert(std::size(kFormats) == kNumDTypes);

}  // namespace

const DTypeInfo& InfoOf(DType type) { return FormatOf(type).info; }

const QuantFormat& FormatOf(DType type) { return *kFormats[static_cast<int>(type)]; }

void DecodeRow(DType type, const uint8_t* row, int64_t n, float* out) {
  const QuantFormat& format = FormatOf(type);
  const int64_t whole = n / format.info.block_elements;
  for (int64_t i = 0; i < whole; ++i) {
    format.decode(row + i * format.info.block_bytes, out + i * format.info.block_elements);
  }
  if (const int64_t rest = n % format.info.block_elements; rest > 0) {
    float block[kMaxBlockElements];
    format.decode(row + whole * format.info.block_bytes, block);
    std::copy_n(block, rest, out + whole * format.info.block_elements);
  }
}

void EncodeRow(DType type, const float* in, int64_t n, uint8_t* out) {
  const QuantFormat& format = FormatOf(type);
  const int64_t whole = n / format.info.block_elements;
  for (int64_t i = 0; i < whole; ++i) {
    format.encode(in + i * format.info.block_elements, out + i * format.info.block_bytes);
  }
  if (const int64_t rest = n % format.info.block_elements; rest > 0) {
    float block[kMaxBlockElements] = {};
    std::copy_n(in + whole * format.info.block_elements, rest, block);
    format.encode(block, out + whole * format.info.block_bytes);
  }
}

bool AllFinite(DType type, const uint8_t* data, int64_t n) {
  const QuantFormat& format = FormatOf(type);
  return format.finite(data, n / format.info.block_elements);
}

}  // namespace weir
