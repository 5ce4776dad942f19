// SPDX-License-Identifier: Apache-2.0
#include "io/gguf_format.h"

#include <fmt/core.h>

#include <bit>

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in place");

// Types without a format in quant/, so that an error can name them.
struct ForeignType {
  uint32_t number;
  const char* name;
};
constexpr ForeignType kForeignTypes[] = {
    {9, "Q8_1"}, {15, "Q8_K"}, {24, "I8"}, {25, "I16"}, {27, "I64"}, {28, "F64"}, {41, "Q1_0"}, {42, "Q2_0"},
};

}  // namespace

int64_t MinBytesOf(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
    case GgufType::kString:
      return 8;
    case GgufType::kArray:
      return 12;
  }
  return 0;
}

std::string GgufPartName(int i, int n) { return fmt::format("-{:05}-of-{:05}.gguf", i + 1, n); }

std::optional<GgufTensorType> FindGgufTensorType(uint32_t number) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    if (InfoOf(type).gguf_number == number) return GgufTensorType{InfoOf(type).name, type};
  }
  for (const ForeignType& foreign : kForeignTypes) {
    if (foreign.number == number) return GgufTensorType{foreign.name, std::nullopt};
  }
  return std::nullopt;
}

}  // namespace weir
