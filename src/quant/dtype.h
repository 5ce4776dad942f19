// SPDX-License-Identifier: Apache-2.0
// Element types of stored tensors: F32, F16, BF16, I32 (plain.cc) and the block formats, one file each in this folder.
//
// The enumerators are generated from the folder's file names: q4_k.cc is DType::kQ4_K. Their numbers are valid within
// one build only. Files never contain them: GGUF has its own numbers (DTypeInfo::gguf_number), and so do saved sessions
// (kv/store_state.cc).
#pragma once

#include <cstdint>

#include "quant/dtype_list.h"  // generated: enum class DType : uint8_t, kNumDTypes

namespace weir {

struct DTypeInfo {
  const char* name;      // the field's name: "F32", "Q4_K" ...
  uint32_t gguf_number;  // in GGUF files
  int block_elements;    // elements per block; 1 for plain types
  int block_bytes;       // bytes per block
};

// Never fails: every element type has a format, and every format has this.
const DTypeInfo& InfoOf(DType type);

inline bool IsBlocked(DType type) { return InfoOf(type).block_elements > 1; }
// Bytes of a row of n elements. REQUIRES: n is a multiple of block_elements.
inline int64_t RowBytes(DType type, int64_t n) {
  return n / InfoOf(type).block_elements * static_cast<int64_t>(InfoOf(type).block_bytes);
}

}  // namespace weir
