// SPDX-License-Identifier: Apache-2.0
// Row-wise operations between products. All F32; in and out may be the same array.
#pragma once

#include <cstdint>

namespace weir {

// y[r, i] = x[r, i] / sqrt(mean_i(x[r, i]^2) + eps) * w[r % n_weights, i]
struct RmsNormArgs {
  const float* x = nullptr;  // [n_rows, dim], contiguous
  const float* w = nullptr;  // [n_weights, dim]
  float* y = nullptr;        // [n_rows, dim]
  int64_t n_rows = 0, dim = 0;
  float eps = 0;
  int64_t n_weights = 1;
};

// y[r, i] = (x[r, i] - mean) / sqrt(variance + eps) * w[i] + b[i], mean and (biased) variance of row r
struct LayerNormArgs {
  const float* x = nullptr;  // [n_rows, dim], contiguous
  const float* w = nullptr;  // [dim]
  const float* b = nullptr;  // [dim]
  float* y = nullptr;        // [n_rows, dim]
  int64_t n_rows = 0, dim = 0;
  float eps = 0;
};

enum class GeluKind {
  kErf,    // x * Phi(x), Phi the normal distribution: "gelu"
  kQuick,  // x / (1 + exp(-1.702 x)): "quick_gelu", CLIP's variant
  kTanh,   // x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))): "gelu_pytorch_tanh"
};

// y = gelu(x), element by element
struct GeluArgs {
  GeluKind kind = GeluKind::kErf;
  const float* x = nullptr;  // [n]
  float* y = nullptr;        // [n]
  int64_t n = 0;
};

// y = max(x, 0), element by element; NaN stays NaN
struct ReluArgs {
  const float* x = nullptr;  // [n]
  float* y = nullptr;        // [n]
  int64_t n = 0;
};

// y = silu(gate) * up, silu(z) = z / (1 + exp(-z))
struct SwiGluArgs {
  const float* gate = nullptr;  // [n]
  const float* up = nullptr;    // [n]
  float* y = nullptr;           // [n]
  int64_t n = 0;
};

// y = g / (1 + exp(-alpha * g)) * (u + 1), g = min(gate, limit), u = up limited to [-limit, limit] (gpt-oss, arXiv
// 2508.10925, section 2.1)
struct ClampedSwiGluArgs {
  const float* gate = nullptr;  // [n]
  const float* up = nullptr;    // [n]
  float* y = nullptr;           // [n]
  int64_t n = 0;
  float alpha = 1.702f, limit = 7;
};

// y = gelu(gate) * up, with the kTanh gelu
struct GeGluArgs {
  const float* gate = nullptr;  // [n]
  const float* up = nullptr;    // [n]
  float* y = nullptr;           // [n]
  int64_t n = 0;
};

// y = cap * tanh(x / cap)
struct SoftCapArgs {
  float cap = 0;             // > 0
  const float* x = nullptr;  // [n]
  float* y = nullptr;        // [n]
  int64_t n = 0;
};

// y = x + z
struct AddArgs {
  const float* x = nullptr;  // [n]
  const float* z = nullptr;  // [n]
  float* y = nullptr;        // [n]
  int64_t n = 0;
};

// y[i] = x[i] * z[i % n_z]
struct MulArgs {
  const float* x = nullptr;  // [n]
  const float* z = nullptr;  // [n_z]
  float* y = nullptr;        // [n]
  int64_t n = 0;
  int64_t n_z = 0;  // 0: n, otherwise a divisor of it
};

// y = x / (1 + exp(-gate))
struct SigmoidGateArgs {
  const float* gate = nullptr;  // [n]
  const float* x = nullptr;     // [n]
  float* y = nullptr;           // [n]
  int64_t n = 0;
};

// y[i] = sum over rows of x[r, i], in row order; added to y if `accumulate`. `y` is not `x`.
struct SumRowsArgs {
  const float* x = nullptr;  // [n_rows, dim], contiguous
  float* y = nullptr;        // [dim]
  int64_t n_rows = 0, dim = 0;
  bool accumulate = false;
};

// y = factor * x
struct ScaleArgs {
  float factor = 1;
  const float* x = nullptr;  // [n]
  float* y = nullptr;        // [n]
  int64_t n = 0;
};

// y = x, at least low and at most high; NaN stays NaN
struct ClampArgs {
  float low = 0, high = 0;   // low <= high
  const float* x = nullptr;  // [n]
  float* y = nullptr;        // [n]
  int64_t n = 0;
};

namespace ref {
void RmsNorm(const RmsNormArgs& args);
void LayerNorm(const LayerNormArgs& args);
void Gelu(const GeluArgs& args);
void Relu(const ReluArgs& args);
void SwiGlu(const SwiGluArgs& args);
void ClampedSwiGlu(const ClampedSwiGluArgs& args);
void GeGlu(const GeGluArgs& args);
void SoftCap(const SoftCapArgs& args);
void Add(const AddArgs& args);
void Mul(const MulArgs& args);
void SigmoidGate(const SigmoidGateArgs& args);
void SumRows(const SumRowsArgs& args);
void Scale(const ScaleArgs& args);
void Clamp(const ClampArgs& args);
}  // namespace ref
}  // namespace weir
