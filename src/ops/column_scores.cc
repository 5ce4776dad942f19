// SPDX-License-Identifier: Apache-2.0
#include "ops/column_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/kv_slots.h"

namespace weir::ref {
namespace {

// Rotates n_rot elements of x by the angles of one position.
void Rotate(const RopeTable& rope, const float* cos, const float* sin, double* x) {
  const int64_t n_pairs = rope.n_rot / 2;
  for (int64_t i = 0; i < n_pairs; ++i) {
    const double x0 = x[i], x1 = x[i + n_pairs];
    x[i] = (x0 * cos[i] - x1 * sin[i]) * rope.magnitude;
    x[i + n_pairs] = (x1 * cos[i] + x0 * sin[i]) * rope.magnitude;
  }
}

void RotateTo(const RopeTable& rope, int64_t pos, double* x) {
  std::vector<float> cos(rope.n_rot / 2), sin(rope.n_rot / 2);
  RopeAngles(rope, &pos, 1, cos.data(), sin.data());
  Rotate(rope, cos.data(), sin.data(), x);
}

// All keys of one KV head as used for scores: [n_slots, head_dim].
std::vector<double> Keys(const AttentionArgs& args, int64_t kv_head) {
  const AttentionSegment& segment = args.segments[0];
  const int64_t n_slots = segment.n_slots[kv_head];
  std::vector<double> keys(n_slots * args.head_dim);
  std::vector<float> stored(args.head_dim);
  for (int64_t slot = 0; slot < n_slots; ++slot) {
    LoadSlot(args.k_type, segment.k[kv_head], slot, args.head_dim, stored.data());
    double* key = &keys[slot * args.head_dim];
    std::copy(stored.begin(), stored.end(), key);
    if (args.rope != nullptr && !args.keys_rotated) RotateTo(*args.rope, slot, key);
  }
  return keys;
}

// p[r, h, 0 .. n_visible) of one row and head; 0 before its window.
std::vector<double> Weights(const ColumnScoresArgs& call, const std::vector<double>& keys, int64_t row, int64_t head) {
  const AttentionArgs& args = call.attention;
  const AttentionSegment& segment = args.segments[0];
  const int64_t kv_head = head / (args.n_heads / args.n_kv_heads);
  const int64_t own = segment.n_slots[kv_head] - segment.n_rows + row;
  const int64_t n_visible = segment.two_way ? segment.n_slots[kv_head] : own + 1;
  const int64_t q_row = segment.first_row + row;
  const float* x = args.q + q_row * args.q_stride + head * args.head_dim;
  std::vector<double> q(x, x + args.head_dim);
  if (args.rope != nullptr && args.keys_rotated) {
    const int64_t n_pairs = args.rope->n_rot / 2;
    Rotate(*args.rope, args.row_cos + q_row * n_pairs, args.row_sin + q_row * n_pairs, q.data());
  } else if (args.rope != nullptr) {
    RotateTo(*args.rope, own, q.data());
  }
  std::vector<double> p(n_visible);
  for (int64_t slot = 0; slot < n_visible; ++slot) {
    double dot = 0;
    for (int64_t i = 0; i < args.head_dim; ++i) dot += q[i] * keys[slot * args.head_dim + i];
    p[slot] = dot * args.scale;
    if (args.softcap > 0) p[slot] = args.softcap * std::tanh(p[slot] / args.softcap);
  }
  const double inverse_tau = call.noise.inverse_tau(row);
  if (call.noise.on) {
    const NoiseKey key = call.noise.key(head, row);
    for (int64_t slot = 0; slot < n_visible; ++slot) {
      const double u = NoiseUniform(key, static_cast<uint32_t>(slot));
      p[slot] = (p[slot] + (call.noise.gumbel ? -std::log(-std::log(u)) : 0)) * inverse_tau;
    }
  }
  const int64_t first = segment.first_slot != nullptr ? segment.first_slot[kv_head][row] : 0;
  std::fill_n(p.begin(), first, -std::numeric_limits<double>::infinity());
  double max = *std::max_element(p.begin(), p.end());
  const double sink = args.sinks != nullptr ? args.sinks[head] * inverse_tau : 0;
  if (args.sinks != nullptr) max = std::max(max, sink);
  double sum = args.sinks != nullptr ? std::exp(sink - max) : 0;
  for (double& w : p) sum += w = std::exp(w - max);
  for (double& w : p) w /= sum;
  return p;
}

void Write(const ColumnScoresArgs& args, const std::vector<double>& scores, int64_t n_heads, float* out) {
  for (size_t slot = 0; slot < scores.size(); ++slot) {
    double score = args.weight * (args.heads == HeadReduce::kMean ? scores[slot] / n_heads : scores[slot]);
    if (args.accumulate) score = args.rows == RowReduce::kSum ? score + out[slot] : std::max<double>(score, out[slot]);
    out[slot] = static_cast<float>(score);
  }
}

}  // namespace

void ColumnScores(const ColumnScoresArgs& args) {
  const AttentionArgs& attention = args.attention;
  const int64_t group = attention.n_heads / attention.n_kv_heads;
  std::vector<double> scores;
  for (int64_t kv_head = 0; kv_head < attention.n_kv_heads; ++kv_head) {
    const int64_t n_slots = attention.segments[0].n_slots[kv_head];
    const std::vector<double> keys = Keys(attention, kv_head);
    if (!args.all_heads || kv_head == 0) scores.assign(n_slots, 0);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      std::vector<double> of_head(n_slots, 0);
      for (int64_t row = args.row_begin; row < args.row_end; ++row) {
        const std::vector<double> p = Weights(args, keys, row, head);
        for (size_t slot = 0; slot < p.size(); ++slot) {
          double& r = of_head[slot];
          r = args.rows == RowReduce::kSum ? r + p[slot] : std::max(r, p[slot]);
        }
      }
      for (int64_t slot = 0; slot < n_slots; ++slot) {
        double& s = scores[slot];
        s = args.heads == HeadReduce::kMax ? std::max(s, of_head[slot]) : s + of_head[slot];
      }
    }
    if (!args.all_heads) Write(args, scores, group, args.out[kv_head]);
  }
  if (args.all_heads) Write(args, scores, attention.n_heads, args.out[0]);
}

}  // namespace weir::ref
