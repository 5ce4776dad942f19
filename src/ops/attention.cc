// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/kv_slots.h"

namespace weir::ref {
namespace {

void Rotate(const RopeTable& rope, double cos, double sin, int64_t pair, double* x) {
  const int64_t n_pairs = rope.n_rot / 2;
  const double x0 = x[pair], x1 = x[pair + n_pairs];
  x[pair] = (x0 * cos - x1 * sin) * rope.magnitude;
  x[pair + n_pairs] = (x1 * cos + x0 * sin) * rope.magnitude;
}

// Rotates one vector to a position that the tables cover.
void RotateTo(const RopeTable& rope, int64_t pos, double* x) {
  const int64_t n_pairs = rope.n_rot / 2;
  const int64_t base = pos / kRopeTile * n_pairs, off = pos % kRopeTile * n_pairs;
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    const double bc = rope.base_cos[base + pair], bs = rope.base_sin[base + pair];
    const double oc = rope.off_cos[off + pair], os = rope.off_sin[off + pair];
    Rotate(rope, bc * oc - bs * os, bs * oc + bc * os, pair, x);
  }
}

struct Scorer {
  const AttentionArgs& args;
  const uint8_t* keys;
  double q[kMaxHeadDim];

  double operator()(int64_t slot) const {
    float stored[kMaxHeadDim];
    double key[kMaxHeadDim];
    LoadSlot(args.k_type, keys, slot, args.head_dim, stored);
    std::copy_n(stored, args.head_dim, key);
    if (args.rope != nullptr && !args.keys_rotated) RotateTo(*args.rope, slot, key);
    double dot = 0;
    for (int64_t i = 0; i < args.head_dim; ++i) dot += q[i] * key[i];
    const double z = dot * args.scale;
    return args.softcap > 0 ? args.softcap * std::tanh(z / args.softcap) : z;
  }
};

void OneHead(const AttentionArgs& args, const AttentionSegment& segment, int64_t i, int64_t head) {
  const int64_t kv_head = head / (args.n_heads / args.n_kv_heads);
  const int64_t row = segment.first_row + i;
  const int64_t own = segment.n_slots[kv_head] - segment.n_rows + i;
  const int64_t n_visible = segment.two_way ? segment.n_slots[kv_head] : own + 1;
  const int64_t first = segment.first_slot != nullptr ? segment.first_slot[kv_head][i] : 0;

  Scorer score{args, segment.k[kv_head], {}};
  std::copy_n(args.q + row * args.q_stride + head * args.head_dim, args.head_dim, score.q);
  if (args.rope != nullptr && args.keys_rotated) {
    const int64_t n_pairs = args.rope->n_rot / 2;
    for (int64_t pair = 0; pair < n_pairs; ++pair) {
      Rotate(*args.rope, args.row_cos[row * n_pairs + pair], args.row_sin[row * n_pairs + pair], pair, score.q);
    }
  } else if (args.rope != nullptr) {
    RotateTo(*args.rope, own, score.q);
  }

  // Calls fn(slot) for every slot that the row sees.
  const auto for_each = [&](const auto& fn) {
    const bool all = segment.selected == nullptr;
    const int64_t n = all ? n_visible : segment.n_selected[kv_head];
    for (int64_t idx = 0; idx < n; ++idx) {
      const int64_t slot = all ? idx : segment.selected[kv_head][idx];
      if (slot >= first && slot < n_visible) fn(slot);
    }
  };
  // Scores are computed twice rather than stored: no memory that grows with the pot.
  double max = args.sinks != nullptr ? args.sinks[head] : -std::numeric_limits<double>::infinity();
  for_each([&](int64_t slot) { max = std::max(max, score(slot)); });
  double sum = args.sinks != nullptr ? std::exp(args.sinks[head] - max) : 0;
  double mix[kMaxHeadDim] = {};
  for_each([&](int64_t slot) {
    const double p = std::exp(score(slot) - max);
    float value[kMaxHeadDim];
    LoadSlot(args.v_type, segment.v[kv_head], slot, args.head_dim, value);
    sum += p;
    for (int64_t d = 0; d < args.head_dim; ++d) mix[d] += p * value[d];
  });
  float* out = args.out + row * args.out_stride + head * args.head_dim;
  for (int64_t d = 0; d < args.head_dim; ++d) out[d] = static_cast<float>(mix[d] / sum);
}

}  // namespace

void Attention(const AttentionArgs& args) {
  for (const AttentionSegment& segment : args.segments) {
    for (int64_t i = 0; i < segment.n_rows; ++i) {
      for (int64_t head = 0; head < args.n_heads; ++head) OneHead(args, segment, i, head);
    }
  }
}

}  // namespace weir::ref
