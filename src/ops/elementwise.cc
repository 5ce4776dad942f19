// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.h"

#include <algorithm>
#include <cmath>

namespace weir::ref {
namespace {

double GeluOf(GeluKind kind, double x) {
  switch (kind) {
    case GeluKind::kErf:
      return 0.5 * x * std::erfc(-x * M_SQRT1_2);
    case GeluKind::kQuick:
      return x / (1.0 + std::exp(-1.702 * x));
    case GeluKind::kTanh:
      return 0.5 * x * (1.0 + std::tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
  }
  return x;
}

}  // namespace

void RmsNorm(const RmsNormArgs& args) {
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* x = args.x + r * args.dim;
    const float* w = args.w + r % args.n_weights * args.dim;
    float* y = args.y + r * args.dim;
    double sum = 0;
    for (int64_t i = 0; i < args.dim; ++i) sum += static_cast<double>(x[i]) * x[i];
    const double inv_rms = 1.0 / std::sqrt(sum / static_cast<double>(args.dim) + args.eps);
    for (int64_t i = 0; i < args.dim; ++i) y[i] = static_cast<float>(x[i] * inv_rms * w[i]);
  }
}

void LayerNorm(const LayerNormArgs& args) {
  for (int64_t r = 0; r < args.n_rows; ++r) {
    const float* x = args.x + r * args.dim;
    float* y = args.y + r * args.dim;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < args.dim; ++i) mean += x[i];
    mean /= static_cast<double>(args.dim);
    for (int64_t i = 0; i < args.dim; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const double inverse = 1.0 / std::sqrt(variance / static_cast<double>(args.dim) + args.eps);
    for (int64_t i = 0; i < args.dim; ++i) y[i] = static_cast<float>((x[i] - mean) * inverse * args.w[i] + args.b[i]);
  }
}

void Gelu(const GeluArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) args.y[i] = static_cast<float>(GeluOf(args.kind, args.x[i]));
}

void Relu(const ReluArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) args.y[i] = args.x[i] < 0 ? 0 : args.x[i];
}

void SwiGlu(const SwiGluArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    const double z = args.gate[i];
    args.y[i] = static_cast<float>(z / (1.0 + std::exp(-z)) * args.up[i]);
  }
}

void ClampedSwiGlu(const ClampedSwiGluArgs& args) {
  const double limit = args.limit;
  for (int64_t i = 0; i < args.n; ++i) {
    // In this order of arguments NaN stays NaN.
    const double g = std::min<double>(args.gate[i], limit);
    const double u = std::max<double>(std::min<double>(args.up[i], limit), -limit);
    args.y[i] = static_cast<float>(g / (1.0 + std::exp(-args.alpha * g)) * (u + 1.0));
  }
}

void GeGlu(const GeGluArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    args.y[i] = static_cast<float>(GeluOf(GeluKind::kTanh, args.gate[i]) * args.up[i]);
  }
}

void SoftCap(const SoftCapArgs& args) {
  const double cap = args.cap;
  for (int64_t i = 0; i < args.n; ++i) args.y[i] = static_cast<float>(cap * std::tanh(args.x[i] / cap));
}

void Mul(const MulArgs& args) {
  const int64_t n_z = args.n_z > 0 ? args.n_z : args.n;
  for (int64_t first = 0; first < args.n; first += n_z) {
    for (int64_t i = 0; i < n_z; ++i) args.y[first + i] = args.x[first + i] * args.z[i];
  }
}

void SigmoidGate(const SigmoidGateArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) {
    args.y[i] = static_cast<float>(args.x[i] / (1.0 + std::exp(-static_cast<double>(args.gate[i]))));
  }
}

void Add(const AddArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) args.y[i] = args.x[i] + args.z[i];
}

void SumRows(const SumRowsArgs& args) {
  if (!args.accumulate) std::fill_n(args.y, args.dim, 0.0f);
  for (int64_t r = 0; r < args.n_rows; ++r) {
    for (int64_t i = 0; i < args.dim; ++i) args.y[i] += args.x[r * args.dim + i];
  }
}

void Scale(const ScaleArgs& args) {
  for (int64_t i = 0; i < args.n; ++i) args.y[i] = args.factor * args.x[i];
}

void Clamp(const ClampArgs& args) {
  // In this order of arguments NaN stays NaN.
  for (int64_t i = 0; i < args.n; ++i) args.y[i] = std::max(std::min(args.x[i], args.high), args.low);
}

}  // namespace weir::ref
