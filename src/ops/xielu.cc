// SPDX-License-Identifier: Apache-2.0
#include "ops/xielu.h"

#include <algorithm>
#include <cmath>

namespace weir::ref {

void Xielu(const XieluArgs& args) {
  const XieluFactors& f = args.factors;
  for (int64_t i = 0; i < args.n; ++i) {
    const float x = args.x[i];
    args.y[i] = f.slope * x + (x > 0 ? f.up * x * x : f.down * (std::expm1(std::min(x, f.least)) - x));
  }
}

}  // namespace weir::ref
