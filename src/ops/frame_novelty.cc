// SPDX-License-Identifier: Apache-2.0
#include "ops/frame_novelty.h"

#include <algorithm>
#include <cmath>

#include "ops/kv_slots.h"

namespace weir {
namespace {

constexpr int64_t kMaxDim = 1024;

int64_t Align8(int64_t bytes) { return (bytes + 7) / 8 * 8; }

// k / |k|; the zero vector is unchanged.
void LoadUnit(const FrameNoveltyArgs& args, int64_t slot, float* unit) {
  ref::LoadSlot(args.type, args.keys, slot, args.head_dim, unit);
  double squares = 0;
  for (int64_t i = 0; i < args.head_dim; ++i) squares += static_cast<double>(unit[i]) * unit[i];
  if (squares == 0) return;
  const float inverse = static_cast<float>(1 / std::sqrt(squares));
  for (int64_t i = 0; i < args.head_dim; ++i) unit[i] *= inverse;
}

}  // namespace

// Places, the distinct recent places, the number of slots at each, and the sum of their unit keys.
int64_t FrameNoveltyScratchBytes(int64_t max_slots, int64_t head_dim) {
  return 3 * Align8(max_slots * 4) + max_slots * head_dim * 4;
}

int32_t* FrameNoveltyPlaces(const FrameNoveltyArgs& args) { return reinterpret_cast<int32_t*>(args.scratch); }

namespace ref {

void FrameNovelty(const FrameNoveltyArgs& args) {
  const int64_t n = args.n_slots, dim = args.head_dim, stride = Align8(n * 4);
  const int32_t* place = FrameNoveltyPlaces(args);
  int32_t* const recent = reinterpret_cast<int32_t*>(args.scratch + stride);
  int32_t* const count = reinterpret_cast<int32_t*>(args.scratch + 2 * stride);
  float* const sum = reinterpret_cast<float*>(args.scratch + 3 * stride);
  int64_t n_recent = 0;
  for (int64_t s = 0; s < n; ++s) {
    if (place[s] >= kRecentPlace) recent[n_recent++] = place[s] - kRecentPlace;
  }
  std::sort(recent, recent + n_recent);
  n_recent = std::unique(recent, recent + n_recent) - recent;
  std::fill(count, count + n_recent, 0);
  std::fill(sum, sum + n_recent * dim, 0.0f);
  const auto find = [&](int32_t at) { return std::lower_bound(recent, recent + n_recent, at) - recent; };
  float unit[kMaxDim];
  for (int64_t s = 0; s < n; ++s) {
    if (place[s] < kRecentPlace) continue;
    const int64_t at = find(place[s] - kRecentPlace);
    LoadUnit(args, s, unit);
    ++count[at];
    for (int64_t i = 0; i < dim; ++i) sum[at * dim + i] += unit[i];
  }
  for (int64_t s = 0; s < n; ++s) {
    args.out[s] = 0;
    if (place[s] == kNoPlace || place[s] >= kRecentPlace) continue;
    const int64_t at = find(place[s]);
    if (at == n_recent || recent[at] != place[s]) {
      args.out[s] = 1;
      continue;
    }
    LoadUnit(args, s, unit);
    double dot = 0;
    for (int64_t i = 0; i < dim; ++i) dot += static_cast<double>(unit[i]) * sum[at * dim + i];
    args.out[s] = static_cast<float>(-dot / count[at]);
  }
}

}  // namespace ref
}  // namespace weir
