// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/elementwise.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = 256;

WEIR_KERNEL void RmsNormRows(RmsNormArgs a) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const float* x = a.x + BlockIdx() * a.dim;
  const float* w = a.w + BlockIdx() % a.n_weights * a.dim;
  float* y = a.y + BlockIdx() * a.dim;
  float sum = 0;
  for (int64_t i = ThreadIdx(); i < a.dim; i += NumThreads()) sum = fmaf(x[i], x[i], sum);
  const float inverse = 1.0f / sqrtf(BlockSum(sum, shared) / static_cast<float>(a.dim) + a.eps);
  for (int64_t i = ThreadIdx(); i < a.dim; i += NumThreads()) y[i] = x[i] * inverse * w[i];
}

WEIR_KERNEL void LayerNormRows(LayerNormArgs a) {
  auto* shared = reinterpret_cast<float*>(SharedMemory());
  const float* x = a.x + BlockIdx() * a.dim;
  float* y = a.y + BlockIdx() * a.dim;
  float sum = 0, squares = 0;
  for (int64_t i = ThreadIdx(); i < a.dim; i += NumThreads()) sum += x[i];
  const float mean = BlockSum(sum, shared) / static_cast<float>(a.dim);
  // Around the mean, in a second pass: squares of large values would lose their differences.
  for (int64_t i = ThreadIdx(); i < a.dim; i += NumThreads()) squares = fmaf(x[i] - mean, x[i] - mean, squares);
  const float inverse = 1.0f / sqrtf(BlockSum(squares, shared) / static_cast<float>(a.dim) + a.eps);
  for (int64_t i = ThreadIdx(); i < a.dim; i += NumThreads()) y[i] = (x[i] - mean) * inverse * a.w[i] + a.b[i];
}

WEIR_DEVICE float GeluOf(GeluKind kind, float x) {
  if (kind == GeluKind::kErf) return 0.5f * x * erfcf(-x * 0.70710678f);
  if (kind == GeluKind::kQuick) return x / (1.0f + expf(-1.702f * x));
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

// One kernel for each function of an element.
WEIR_KERNEL void GeluEach(GeluArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = GeluOf(a.kind, a.x[i]);
}
WEIR_KERNEL void ReluEach(ReluArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = a.x[i] < 0 ? 0.0f : a.x[i];
}
WEIR_KERNEL void SwiGluEach(SwiGluArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = a.gate[i] / (1.0f + expf(-a.gate[i])) * a.up[i];
}
WEIR_KERNEL void ClampedSwiGluEach(ClampedSwiGluArgs a) {
  const int64_t i = GlobalThread();
  if (i >= a.n) return;
  // Written so that NaN stays NaN.
  const float g = a.gate[i] > a.limit ? a.limit : a.gate[i];
  const float u = a.up[i] > a.limit ? a.limit : a.up[i] < -a.limit ? -a.limit : a.up[i];
  a.y[i] = g / (1.0f + expf(-a.alpha * g)) * (u + 1.0f);
}
WEIR_KERNEL void GeGluEach(GeGluArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = GeluOf(GeluKind::kTanh, a.gate[i]) * a.up[i];
}
WEIR_KERNEL void SoftCapEach(SoftCapArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = a.cap * tanhf(a.x[i] / a.cap);
}
WEIR_KERNEL void AddEach(AddArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = a.x[i] + a.z[i];
}
WEIR_KERNEL void MulEach(MulArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = a.x[i] * a.z[a.n_z > 0 ? i % a.n_z : i];
}
WEIR_KERNEL void SigmoidGateEach(SigmoidGateArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = a.x[i] / (1.0f + expf(-a.gate[i]));
}
WEIR_KERNEL void ScaleEach(ScaleArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = a.factor * a.x[i];
}

WEIR_KERNEL void ClampEach(ClampArgs a) {
  const int64_t i = GlobalThread();
  if (i < a.n) a.y[i] = a.x[i] > a.high ? a.high : a.x[i] < a.low ? a.low : a.x[i];
}

WEIR_KERNEL void SumRowsEach(SumRowsArgs a) {
  const int64_t i = GlobalThread();
  if (i >= a.dim) return;
  float sum = a.accumulate ? a.y[i] : 0.0f;
  for (int64_t r = 0; r < a.n_rows; ++r) sum += a.x[r * a.dim + i];
  a.y[i] = sum;
}
WEIR_KERNEL void SquaresEach(SquaresArgs a, int64_t n) {
  const int64_t i = GlobalThread();
  if (i >= n) return;
  const int64_t run = a.side * a.dim, row = i / run, plane = row / a.side % a.n_planes;
  const int64_t square = row / a.side / a.n_planes, groups_a_line = a.width / a.side / a.group;
  const int64_t group = square / (a.group * a.group), in = square % (a.group * a.group);
  const int64_t x = group % groups_a_line * a.group + in % a.group, y = group / groups_a_line * a.group + in / a.group;
  a.y[i] = a.x[((plane * a.height + y * a.side + row % a.side) * a.width + x * a.side) * a.dim + i % run];
}
WEIR_KERNEL void RotateEach(RotateArgs a, int64_t n_pairs, float magnitude) {
  const int64_t i = GlobalThread();
  if (i >= a.n_rows * a.n_heads * n_pairs) return;
  const int64_t vector = i / n_pairs, pair = i % n_pairs, angle = vector / a.n_heads * n_pairs + pair;
  const float c = a.cos[angle] * magnitude, s = a.sin[angle] * magnitude;
  float* x = a.x + vector * a.head_dim + pair;
  const float x0 = x[0], x1 = x[n_pairs];
  x[0] = x0 * c - x1 * s;
  x[n_pairs] = x1 * c + x0 * s;
}

WEIR_KERNEL void AnglesEach(const double* inv_freq, int64_t n_pairs, const int64_t* pos, int64_t n, float* cosines,
                            float* sines) {
  const int64_t i = GlobalThread();
  if (i >= n) return;
  const double angle = static_cast<double>(pos[i / n_pairs]) * inv_freq[i % n_pairs];
  cosines[i] = static_cast<float>(cos(angle));
  sines[i] = static_cast<float>(sin(angle));
}

Grid Each(int64_t n) { return {Blocks(n, kThreads)}; }

}  // namespace

void RmsNorm(Device& device, const RmsNormArgs& args) {
  device.Mine(args.x), device.Mine(args.w), device.Mine(args.y);
  device.Launch(RmsNormRows, Grid{args.n_rows}, kThreads, kWarp * 4, args);
}
void LayerNorm(Device& device, const LayerNormArgs& args) {
  device.Mine(args.x), device.Mine(args.w), device.Mine(args.b), device.Mine(args.y);
  device.Launch(LayerNormRows, Grid{args.n_rows}, kThreads, kWarp * 4, args);
}
void Gelu(Device& device, const GeluArgs& args) {
  device.Mine(args.x), device.Mine(args.y);
  device.Launch(GeluEach, Each(args.n), kThreads, 0, args);
}
void Relu(Device& device, const ReluArgs& args) {
  device.Mine(args.x), device.Mine(args.y);
  device.Launch(ReluEach, Each(args.n), kThreads, 0, args);
}
void SwiGlu(Device& device, const SwiGluArgs& args) {
  device.Mine(args.gate), device.Mine(args.up), device.Mine(args.y);
  device.Launch(SwiGluEach, Each(args.n), kThreads, 0, args);
}
void ClampedSwiGlu(Device& device, const ClampedSwiGluArgs& args) {
  device.Mine(args.gate), device.Mine(args.up), device.Mine(args.y);
  device.Launch(ClampedSwiGluEach, Each(args.n), kThreads, 0, args);
}
void GeGlu(Device& device, const GeGluArgs& args) {
  device.Mine(args.gate), device.Mine(args.up), device.Mine(args.y);
  device.Launch(GeGluEach, Each(args.n), kThreads, 0, args);
}
void SoftCap(Device& device, const SoftCapArgs& args) {
  device.Mine(args.x), device.Mine(args.y);
  device.Launch(SoftCapEach, Each(args.n), kThreads, 0, args);
}
void Add(Device& device, const AddArgs& args) {
  device.Mine(args.x), device.Mine(args.z), device.Mine(args.y);
  device.Launch(AddEach, Each(args.n), kThreads, 0, args);
}
void Mul(Device& device, const MulArgs& args) {
  device.Mine(args.x), device.Mine(args.z), device.Mine(args.y);
  device.Launch(MulEach, Each(args.n), kThreads, 0, args);
}
void SigmoidGate(Device& device, const SigmoidGateArgs& args) {
  device.Mine(args.gate), device.Mine(args.x), device.Mine(args.y);
  device.Launch(SigmoidGateEach, Each(args.n), kThreads, 0, args);
}
void Scale(Device& device, const ScaleArgs& args) {
  device.Mine(args.x), device.Mine(args.y);
  device.Launch(ScaleEach, Each(args.n), kThreads, 0, args);
}

void Clamp(Device& device, const ClampArgs& args) {
  device.Mine(args.x), device.Mine(args.y);
  device.Launch(ClampEach, Each(args.n), kThreads, 0, args);
}

void SumRows(Device& device, const SumRowsArgs& args) {
  device.Mine(args.x), device.Mine(args.y);
  device.Launch(SumRowsEach, Each(args.dim), kThreads, 0, args);
}
void Squares(Device& device, const SquaresArgs& args) {
  device.Mine(args.x), device.Mine(args.y);
  const int64_t n = args.n_squares() * args.n_planes * args.side * args.side * args.dim;
  device.Launch(SquaresEach, Each(n), kThreads, 0, args, n);
}
void Rotate(Device& device, const RotateArgs& args) {
  device.Mine(args.cos), device.Mine(args.sin), device.Mine(args.x);
  const int64_t n_pairs = args.table->n_rot / 2;
  device.Launch(RotateEach, Each(args.n_rows * args.n_heads * n_pairs), kThreads, 0, args, n_pairs,
                args.table->magnitude);
}

void RopeAngles(Device& device, const RopeTable& table, std::span<const int64_t> pos, float* cos, float* sin) {
  const int64_t n_pairs = table.n_rot / 2, n = std::ssize(pos) * n_pairs;
  const auto* inv_freq = reinterpret_cast<const double*>(device.Mine(table.device));
  device.Launch(AnglesEach, Each(n), kThreads, 0, inv_freq, n_pairs, device.Stage(pos.data(), std::ssize(pos)), n,
                device.Mine(cos), device.Mine(sin));
}

}  // namespace weir::WEIR_GPU
