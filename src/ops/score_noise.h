// SPDX-License-Identifier: Apache-2.0
// Attention that votes with noise and a temperature: what Keyformer ranks by (arXiv 2403.09054, section 3.3).
//
//   p[r, h, s] = softmax_s((z[r, h, s] + g[r, h, s]) / tau[r])      g = -ln(-ln u), standard Gumbel noise
//
// z are the scores of ops/attention.h before their softmax, soft cap included; a sink is divided by tau and has no
// noise. u depends on nothing but the seed, the query head, the row's number in its stream and the slot: the same
// stream gives the same votes, however it is cut into calls and on however many threads.
//
//   a = Mix(Mix(seed + head) + row)       Mix: one step of splitmix64
//   x = low(a) + slot * 0x9e3779b9        32 bits, like everything below
//   x = (x ^ x >> 16) * 0x7feb352d ^ high(a)
//   x = (x ^ x >> 15) * 0x846ca68b
//   u = ((x ^ x >> 16) >> 9, plus a half) / 2^23
//
// Every u is a binary32 number in (0, 1), so that no g is infinite.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weir {

inline constexpr uint32_t kNoiseStride = 0x9e3779b9u, kNoiseMul1 = 0x7feb352du, kNoiseMul2 = 0x846ca68bu;

constexpr uint64_t NoiseMix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// What the slots of one row of one query head have in common.
struct NoiseKey {
  uint32_t low = 0, high = 0;
};

constexpr NoiseKey NoiseKeyOf(uint64_t seed, int64_t head, int64_t row) {
  const uint64_t a = NoiseMix(NoiseMix(seed + static_cast<uint64_t>(head)) + static_cast<uint64_t>(row));
  return {static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32)};
}

constexpr float NoiseUniform(NoiseKey key, uint32_t slot) {
  uint32_t x = key.low + slot * kNoiseStride;
  x = ((x ^ (x >> 16)) * kNoiseMul1) ^ key.high;
  x = (x ^ (x >> 15)) * kNoiseMul2;
  return (static_cast<float>((x ^ (x >> 16)) >> 9) + 0.5f) * 0x1p-23f;
}

// How the rows of one call vote.
struct ScoreNoise {
  bool on = false;     // false: as they attend
  bool gumbel = true;  // false: no noise, a temperature alone
  uint64_t seed = 0;
  int64_t first_row = 0;   // number in its stream of the segment's row 0
  int64_t first_head = 0;  // number of the call's query head 0
  // tau of the segment's row i: tau + tau_step * (step + i), at most tau_end.
  float tau = 1, tau_step = 0, tau_end = 1;
  int64_t step = 0;

  NoiseKey key(int64_t head, int64_t row) const { return NoiseKeyOf(seed, first_head + head, first_row + row); }
  float inverse_tau(int64_t row) const {
    return on ? 1.0f / std::min(tau_end, tau + tau_step * static_cast<float>(step + row)) : 1.0f;
  }
};

}  // namespace weir
