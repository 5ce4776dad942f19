// SPDX-License-Identifier: Apache-2.0
#include "ops/nll.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace weir::ref {

void HeadNll(const NllArgs& args) {
  const int64_t n_vocab = args.head->n_out();
  const NllTiles tiles(n_vocab, args.normaliser);
  std::vector<float> z(static_cast<size_t>(n_vocab));
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const int32_t target = args.target[r];
    args.nll[r] = 0;
    if (target < 0) continue;
    const MatMulOut out = {args.head, z.data(), n_vocab, args.bias, false};
    MatMul({args.x + r * args.n_in, args.n_in, 1, args.n_in, {&out, 1}, nullptr});
    if (args.softcap > 0) {
      for (float& value : z) value = args.softcap * std::tanh(value / args.softcap);
    }
    const float of_target = z[target];
    if (tiles.sampled(target)) z[target] = -std::numeric_limits<float>::infinity();
    std::vector<float> counted;
    for (int64_t t = 0; t < tiles.n_tiles(); ++t) {
      for (int64_t i = 0; i < tiles.n_ids(t); ++i) counted.push_back(z[tiles.first_id(t) + i] + tiles.log_weight(t));
    }
    if (tiles.sampled(target)) counted.push_back(of_target);
    args.nll[r] = LogSumExp(counted.data(), std::ssize(counted)) - of_target;
  }
}

float LogSumExp(const float* logits, int64_t n) {
  const double largest = *std::max_element(logits, logits + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - largest);
  return static_cast<float>(std::log(sum) + largest);
}

}  // namespace weir::ref
