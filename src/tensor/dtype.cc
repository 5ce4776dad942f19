#include "tensor/dtype.h"

namespace weir {

const DTypeInfo& InfoOf(DType type) {
  static constexpr DTypeInfo kInfos[kNumDTypes] = {
      {"F32", 1, 4},    {"F16", 1, 2},    {"BF16", 1, 2},   {"I32", 1, 4},      {"Q8_0", 32, 34},   {"Q4_0", 32, 18},
      {"Q4_1", 32, 20}, {"Q5_0", 32, 22}, {"Q5_1", 32, 24}, {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
  };
  return kInfos[static_cast<int>(type)];
}

}  // namespace weir
