// SPDX-License-Identifier: Apache-2.0
// The constants of the GGUF file format, shared by reader and writer.
//
// A file is: magic "GGUF", version (u32), tensor count (u64), key count (u64); then per key its name, a value type and
// the value; then per tensor its name, number of dimensions (u32), dimensions innermost first (u64 each), element type
// (u32) and offset (u64) into the data section; then zeros up to a multiple of the alignment, where the data section
// starts. A string is its length (u64) and its bytes. An array is its element type (u32), its count (u64) and the
// elements. All little endian. Source: docs/gguf.md of the ggml project.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quant/dtype.h"

namespace weir {

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr uint32_t kGgufVersion = 3;         // written version; 2 has the same layout
inline constexpr int64_t kGgufDefaultAlignment = 32;
inline constexpr int64_t kGgufMaxAlignment = int64_t{1} << 20;
inline constexpr uint32_t kGgufMaxDims = 4;
inline constexpr char kGgufAlignmentKey[] = "general.alignment";

// A model in parts, as llama.cpp's gguf-split writes it: each file says which part it is, counted from 0, of how many;
// the first one also how many tensors all of them have. The names end in the same numbers, counted from 1.
inline constexpr char kGgufSplitNumberKey[] = "split.no";
inline constexpr char kGgufSplitCountKey[] = "split.count";
inline constexpr char kGgufSplitTensorsKey[] = "split.tensors.count";
inline constexpr int64_t kGgufMaxParts = 99'999;
// "-00001-of-00003.gguf" for part 0 of 3.
std::string GgufPartName(int i, int n);

// Tensor offsets are multiples of this. At least 8, so that every element type can be read in place; the upper bound is
// ours, against files with useless gaps.
inline constexpr bool IsGgufAlignment(int64_t alignment) {
  return alignment >= 8 && alignment <= kGgufMaxAlignment && (alignment & (alignment - 1)) == 0;
}

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// Size of a value, or its minimum (a string's length field); 0 for an unknown type number.
int64_t MinBytesOf(GgufType type);

// One element type that a file may use.
struct GgufTensorType {
  const char* name;
  std::optional<DType> dtype;  // absent when this build does not support it
};

// nullopt for an unknown number.
std::optional<GgufTensorType> FindGgufTensorType(uint32_t number);

}  // namespace weir
