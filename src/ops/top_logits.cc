// SPDX-License-Identifier: Apache-2.0
#include "ops/top_logits.h"

#include <algorithm>
#include <cmath>

namespace weir::ref {

void TopLogits(const TopLogitsArgs& args) {
  const float* z = args.logits;
  const auto before = [z](int32_t a, int32_t b) {
    const bool finite_a = std::isfinite(z[a]), finite_b = std::isfinite(z[b]);
    if (finite_a != finite_b) return finite_b;
    return finite_a && z[a] != z[b] ? z[a] > z[b] : a < b;
  };
  // A heap of the k best so far, the worst at the front: most logits need only one comparison.
  int32_t* const end = args.ids + args.k;
  for (int64_t i = 0; i < args.k; ++i) args.ids[i] = static_cast<int32_t>(i);
  std::make_heap(args.ids, end, before);
  for (int64_t i = args.k; i < args.n; ++i) {
    // Later ids lose ties, so only a larger or an invalid logit enters the heap.
    if (z[i] <= z[args.ids[0]] && std::isfinite(z[i])) continue;
    if (!before(static_cast<int32_t>(i), args.ids[0])) continue;
    std::pop_heap(args.ids, end, before);
    end[-1] = static_cast<int32_t>(i);
    std::push_heap(args.ids, end, before);
  }
  std::sort_heap(args.ids, end, before);
  for (int64_t i = 0; i < args.k; ++i) args.values[i] = z[args.ids[i]];
}

}  // namespace weir::ref
