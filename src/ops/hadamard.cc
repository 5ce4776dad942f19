// SPDX-License-Identifier: Apache-2.0
#include "ops/hadamard.h"

namespace weir::ref {

void Hadamard(float* x, int64_t n) {
  const int64_t block = HadamardBlock(n);
  const float factor = HadamardFactor(n);
  for (int64_t apart = 1; apart < block; apart *= 2) {
    for (int64_t i = 0; i < n; ++i) {
      if ((i & apart) != 0) continue;
      const float a = x[i], b = x[i + apart];
      x[i] = a + b;
      x[i + apart] = a - b;
    }
  }
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace weir::ref
