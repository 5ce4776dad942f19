#include "io/gguf_format.h"

#include <bit>

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in place");

// Types without a DType are listed so that an error can name them.
constexpr GgufTensorType kTensorTypes[] = {
    {0, "F32", DType::kF32},      {1, "F16", DType::kF16},       {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},    {6, "Q5_0", DType::kQ5_0},     {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},    {9, "Q8_1", std::nullopt},     {10, "Q2_K", std::nullopt},
    {11, "Q3_K", std::nullopt},   {12, "Q4_K", DType::kQ4_K},    {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},   {15, "Q8_K", std::nullopt},    {16, "IQ2_XXS", std::nullopt},
    {17, "IQ2_XS", std::nullopt}, {18, "IQ3_XXS", std::nullopt}, {19, "IQ1_S", std::nullopt},
    {20, "IQ4_NL", std::nullopt}, {21, "IQ3_S", std::nullopt},   {22, "IQ2_S", std::nullopt},
    {23, "IQ4_XS", std::nullopt}, {24, "I8", std::nullopt},      {25, "I16", std::nullopt},
    {26, "I32", DType::kI32},     {27, "I64", std::nullopt},     {28, "F64", std::nullopt},
    {29, "IQ1_M", std::nullopt},  {30, "BF16", DType::kBF16},    {34, "TQ1_0", std::nullopt},
    {35, "TQ2_0", std::nullopt},  {39, "MXFP4", std::nullopt},   {40, "NVFP4", std::nullopt},
    {41, "Q1_0", std::nullopt},   {42, "Q2_0", std::nullopt},
};

constexpr bool EveryDTypeHasANumber() {
  for (int i = 0; i < kNumDTypes; ++i) {
    bool found = false;
    for (const GgufTensorType& row : kTensorTypes) found |= row.dtype == static_cast<DType>(i);
    if (!found) return false;
  }
  return true;
}
static_assert(EveryDTypeHasANumber());

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

const GgufTensorType* FindGgufTensorType(uint32_t number) {
  for (const GgufTensorType& row : kTensorTypes) {
    if (row.number == number) return &row;
  }
  return nullptr;
}

uint32_t GgufNumberOf(DType type) {
  for (const GgufTensorType& row : kTensorTypes) {
    if (row.dtype == type) return row.number;
  }
  return 0;  // not reached: the table is complete by assertion
}

}  // namespace weir
