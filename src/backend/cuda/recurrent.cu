// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/recurrent.h"

#include "ops/state_block.h"

namespace weir::WEIR_GPU {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostShared = 48 << 10;  // what every device gives a block unasked

WEIR_DEVICE float Softplus(float z) { return z > 20.0f ? z : log1pf(expf(z)); }

// One thread per channel, from the first row to the last: y may be x.
WEIR_KERNEL void ConvEach(CausalConvArgs a) {
  const int64_t c = GlobalThread(), n_before = a.n_taps - 1;
  if (c >= a.n_channels) return;
  float seen[kMaxConvTaps];
  for (int64_t t = 0; t < n_before; ++t) seen[t] = a.state[t * a.n_channels + c];
  for (int64_t r = 0; r < a.n_rows; ++r) {
    seen[n_before] = a.x[r * a.n_channels + c];
    float sum = a.bias == nullptr ? 0.0f : a.bias[c];
    for (int64_t t = 0; t < a.n_taps; ++t) sum = fmaf(a.w[t * a.n_channels + c], seen[t], sum);
    a.y[r * a.n_channels + c] = a.silu ? sum / (1.0f + expf(-sum)) : sum;
    for (int64_t t = 0; t < n_before; ++t) seen[t] = seen[t + 1];
  }
  for (int64_t t = 0; t < n_before; ++t) a.state[t * a.n_channels + c] = seen[t];
}

// A head's columns in blocks of `width`, one block of threads each, a thread for each column. The columns are in shared
// memory for all rows if they fit; a thread touches its own alone.
WEIR_KERNEL void DeltaColumns(DeltaRuleArgs a, int64_t width, bool shared) {
  const int64_t n_parts = a.d_v / width, h = BlockIdx() / n_parts, j = ThreadIdx();
  if (j >= width) return;
  float* const kept = a.state + BlockIdx() * a.d_k * width + j;
  float* const s = shared ? reinterpret_cast<float*>(SharedMemory()) + j : kept;
  if (shared) {
    for (int64_t i = 0; i < a.d_k; ++i) s[i * width] = kept[i * width];
  }
  const int64_t k_head = a.grouped ? h / (a.n_v_heads / a.n_k_heads) : h % a.n_k_heads;
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const int64_t at = r * a.n_v_heads + h, column = at * a.d_v + BlockIdx() % n_parts * width + j;
    const float* const k = a.k + (r * a.n_k_heads + k_head) * a.d_k;
    const float* const q = a.q + (r * a.n_k_heads + k_head) * a.d_k;
    const float g = expf(a.a[h] * Softplus(a.alpha[at] + a.dt_bias[h]));
    float known = 0, out = 0;
    for (int64_t i = 0; i < a.d_k; ++i) known = fmaf(k[i], s[i * width], known);
    const float delta = (a.v[column] - g * known) / (1.0f + expf(-a.beta[at]));
    for (int64_t i = 0; i < a.d_k; ++i) {
      const float next = fmaf(k[i], delta, g * s[i * width]);
      s[i * width] = next;
      out = fmaf(q[i], next, out);
    }
    a.out[column] = out;
  }
  if (shared) {
    for (int64_t i = 0; i < a.d_k; ++i) kept[i * width] = s[i * width];
  }
}

// The same way.
WEIR_KERNEL void SsmColumns(SsmScanArgs a, int64_t width, bool shared) {
  const int64_t n_parts = a.d_head / width, h = BlockIdx() / n_parts, j = ThreadIdx();
  if (j >= width) return;
  float* const kept = a.state + BlockIdx() * a.d_state * width + j;
  float* const s = shared ? reinterpret_cast<float*>(SharedMemory()) + j : kept;
  if (shared) {
    for (int64_t i = 0; i < a.d_state; ++i) s[i * width] = kept[i * width];
  }
  const int64_t group = h / (a.n_heads / a.n_groups);
  for (int64_t r = 0; r < a.n_rows; ++r) {
    const int64_t at = r * a.n_heads + h, column = at * a.d_head + BlockIdx() % n_parts * width + j;
    const float* const b = a.b + (r * a.n_groups + group) * a.d_state;
    const float* const c = a.c + (r * a.n_groups + group) * a.d_state;
    const float t = Softplus(a.dt[at] + a.dt_bias[h]), g = expf(a.a[h] * t), x = a.x[column];
    float out = a.d[h] * x;
    for (int64_t i = 0; i < a.d_state; ++i) {
      const float next = fmaf(b[i], t * x, g * s[i * width]);
      s[i * width] = next;
      out = fmaf(c[i], next, out);
    }
    a.out[column] = out;
  }
  if (shared) {
    for (int64_t i = 0; i < a.d_state; ++i) kept[i * width] = s[i * width];
  }
}

// Whole warps for `columns`.
int ThreadsOf(int64_t columns) { return static_cast<int>((columns + kWarp - 1) / kWarp * kWarp); }

}  // namespace

void CausalConv(Device& device, const CausalConvArgs& args) {
  device.Mine(args.x), device.Mine(args.w), device.Mine(args.bias), device.Mine(args.state), device.Mine(args.y);
  device.Launch(ConvEach, {Blocks(args.n_channels, kThreads)}, kThreads, 0, args);
}

void DeltaRule(Device& device, const DeltaRuleArgs& args) {
  device.Mine(args.q), device.Mine(args.k), device.Mine(args.v), device.Mine(args.alpha), device.Mine(args.beta);
  device.Mine(args.a), device.Mine(args.dt_bias), device.Mine(args.state), device.Mine(args.out);
  const int64_t width = StateBlockWidth(args.d_v), bytes = args.d_k * width * 4;
  const bool shared = bytes <= kMostShared;
  device.Launch(DeltaColumns, {args.n_v_heads * (args.d_v / width)}, ThreadsOf(width), shared ? bytes : 0, args, width,
                shared);
}

void SsmScan(Device& device, const SsmScanArgs& args) {
  device.Mine(args.x), device.Mine(args.b), device.Mine(args.c), device.Mine(args.dt), device.Mine(args.dt_bias);
  device.Mine(args.a), device.Mine(args.d), device.Mine(args.state), device.Mine(args.out);
  const int64_t width = StateBlockWidth(args.d_head), bytes = args.d_state * width * 4;
  const bool shared = bytes <= kMostShared;
  device.Launch(SsmColumns, {args.n_heads * (args.d_head / width)}, ThreadsOf(width), shared ? bytes : 0, args, width,
                shared);
}

}  // namespace weir::WEIR_GPU
