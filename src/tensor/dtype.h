// Element types of stored tensors. Numbering is Weir's own; io/gguf.h maps the file's numbers to it.
#pragma once

#include <cstdint>

namespace weir {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  // Block formats (quant/format.h has their layouts): a block holds 32 or 256 consecutive elements of a row.
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};
inline constexpr int kNumDTypes = 12;

struct DTypeInfo {
  const char* name;    // the field's name: "F32", "Q4_K" ...
  int block_elements;  // elements per block; 1 for plain types
  int block_bytes;     // bytes per block
};

// Never fails: every enumerator has a row.
const DTypeInfo& InfoOf(DType type);

inline bool IsBlocked(DType type) { return InfoOf(type).block_elements > 1; }
// Bytes of a row of n elements. REQUIRES: n is a multiple of block_elements.
inline int64_t RowBytes(DType type, int64_t n) {
  return n / InfoOf(type).block_elements * static_cast<int64_t>(InfoOf(type).block_bytes);
}

}  // namespace weir
