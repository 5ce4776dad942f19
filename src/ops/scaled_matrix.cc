// SPDX-License-Identifier: Apache-2.0
#include "ops/scaled_matrix.h"

#include <algorithm>
#include <typeinfo>

namespace weir {
namespace {

// nullptr: an ordinary matrix. Called for every product, so that it compares types only.
const ScaledMatrix* ScaledOf(const Matrix& w) {
  return typeid(w) == typeid(ScaledMatrix) ? static_cast<const ScaledMatrix*>(&w) : nullptr;
}

// y = scale * y + bias
void ScaleRow(float scale, const float* bias, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
  if (bias == nullptr) return;
  for (int64_t i = 0; i < n; ++i) y[i] += bias[i];
}

// The same products of the matrices inside, without biases.
template <typename Out>
std::vector<Out> Inner(std::span<const Out> outs) {
  std::vector<Out> inner(outs.begin(), outs.end());
  for (Out& out : inner) {
    const ScaledMatrix* const w = ScaledOf(*out.w);
    if (w == nullptr) continue;
    out.w = &w->inner();
    out.bias = nullptr;
  }
  return inner;
}

template <typename Out>
bool AnyScaled(std::span<const Out> outs) {
  return std::any_of(outs.begin(), outs.end(), [](const Out& out) { return ScaledOf(*out.w) != nullptr; });
}

}  // namespace

bool HasScales(std::span<const MatMulOut> outs) { return AnyScaled(outs); }
bool HasScales(std::span<const StackedOut> outs) { return AnyScaled(outs); }

void MatMulWithScales(const MatMulArgs& args, const std::function<void(const MatMulArgs&)>& product) {
  const auto scale_rows = [&](const MatMulOut& out, float scale, const float* bias) {
    for (int64_t r = 0; r < args.n_rows; ++r) ScaleRow(scale, bias, out.w->n_out(), out.y + r * out.y_stride);
  };
  for (const MatMulOut& out : args.outs) {
    const ScaledMatrix* const w = ScaledOf(*out.w);
    // What the product is added to is scaled with it.
    if (w != nullptr && out.accumulate) scale_rows(out, 1 / w->scale(), nullptr);
  }
  const std::vector<MatMulOut> outs = Inner(args.outs);
  MatMulArgs inner = args;
  inner.outs = outs;
  product(inner);
  for (const MatMulOut& out : args.outs) {
    if (const ScaledMatrix* const w = ScaledOf(*out.w)) scale_rows(out, w->scale(), out.bias);
  }
}

void GroupedMatMulWithScales(const GroupedMatMulArgs& args,
                             const std::function<void(const GroupedMatMulArgs&)>& product) {
  const std::vector<StackedOut> outs = Inner(args.outs);
  GroupedMatMulArgs inner = args;
  inner.outs = outs;
  product(inner);
  for (const StackedOut& out : args.outs) {
    const ScaledMatrix* const w = ScaledOf(*out.w);
    if (w == nullptr) continue;
    const int64_t n_stacked = w->n_out() / out.n_out;
    for (const RowGroup& group : args.groups) {
      const float* const bias = out.bias == nullptr ? nullptr : out.bias + group.matrix * out.n_out;
      for (int64_t r = group.first_row; r < group.first_row + group.n_rows; ++r) {
        ScaleRow(w->scale(group.matrix, n_stacked), bias, out.n_out, out.y + r * out.n_out);
      }
    }
  }
}

}  // namespace weir
