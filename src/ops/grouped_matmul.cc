// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_matmul.h"

#include <vector>

namespace weir::ref {
namespace {

// A row of activations as a matrix of this type multiplies it.
std::vector<double> Activations(DType type, const float* x, int64_t n_in) {
  std::vector<double> out(x, x + n_in);
  if (!IsBlocked(type)) return out;
  std::vector<int8_t> q(static_cast<size_t>(n_in));
  std::vector<float> d(static_cast<size_t>(n_in / kQ8Block));
  QuantizeRowQ8(x, n_in, q.data(), d.data());
  for (int64_t k = 0; k < n_in; ++k) out[k] = static_cast<double>(q[k]) * d[k / kQ8Block];
  return out;
}

}  // namespace

void GroupedMatMul(const GroupedMatMulArgs& args) {
  std::vector<float> w(static_cast<size_t>(args.n_in));
  for (const StackedOut& out : args.outs) {
    for (const RowGroup& group : args.groups) {
      std::vector<std::vector<double>> x;
      for (int64_t r = group.first_row; r < group.first_row + group.n_rows; ++r) {
        x.push_back(Activations(out.w->type(), args.x + r * args.n_in, args.n_in));
      }
      for (int64_t o = 0; o < out.n_out; ++o) {
        const auto row = static_cast<int32_t>(group.matrix * out.n_out + o);
        EmbedRows(*out.w, &row, 1, w.data());
        for (int64_t i = 0; i < group.n_rows; ++i) {
          double sum = out.bias == nullptr ? 0 : out.bias[row];
          for (int64_t k = 0; k < args.n_in; ++k) sum += x[i][k] * w[k];
          out.y[(group.first_row + i) * out.n_out + o] = static_cast<float>(sum);
        }
      }
    }
  }
}

}  // namespace weir::ref
