// SPDX-License-Identifier: Apache-2.0
#include "ops/scenes.h"

#include <cmath>

#include "ops/kv_slots.h"

namespace weir::ref {
namespace {

constexpr int64_t kMaxDim = 1024;
constexpr int64_t kLanes = 8;  // sums that a compiler can keep in one register

// Whether 1 - cos of two keys is above args.change.
bool Differ(const ScenesArgs& args, int64_t a, int64_t b) {
  float x[kMaxDim], y[kMaxDim];
  LoadSlot(args.type, args.keys, a, args.head_dim, x);
  LoadSlot(args.type, args.keys, b, args.head_dim, y);
  float xy[kLanes] = {}, xx[kLanes] = {}, yy[kLanes] = {};
  for (int64_t i = 0; i < args.head_dim; ++i) {
    const int64_t lane = i % kLanes;
    xy[lane] += x[i] * y[i];
    xx[lane] += x[i] * x[i];
    yy[lane] += y[i] * y[i];
  }
  for (int64_t lane = 1; lane < kLanes; ++lane) xy[0] += xy[lane], xx[0] += xx[lane], yy[0] += yy[lane];
  const float squares = xx[0] * yy[0];
  return 1 - (squares > 0 ? xy[0] / std::sqrt(squares) : 0.0f) > args.change;
}

}  // namespace

void Scenes(const ScenesArgs& args) {
  const int32_t* place = args.places;
  int64_t first_begin = 0, first_end = 0;  // the first frame of the scene
  int32_t scene = 0;
  for (int64_t begin = 0, end; begin < args.n_slots; begin = end) {
    end = begin + 1;
    args.out[begin] = 0;
    if (place[begin] == kNotInScene) continue;
    while (end < args.n_slots && place[end] != kNotInScene && place[end] < kBeginsFrame) ++end;
    int64_t n_common = 0, n_changed = 0, at = first_begin;
    for (int64_t s = begin; s < end; ++s) {
      const int32_t here = place[s] % kBeginsFrame;
      while (at < first_end && place[at] % kBeginsFrame < here) ++at;
      const bool common = at < first_end && place[at] % kBeginsFrame == here;
      const bool changed = common && Differ(args, s, at);
      n_common += common;
      n_changed += changed;
      args.out[s] = changed ? 1 : -1;
    }
    const bool begins = 2 * n_changed >= n_common;
    if (begins) ++scene, first_begin = begin, first_end = end;
    for (int64_t s = begin; s < end; ++s) {
      args.out[s] = static_cast<float>(begins || args.out[s] > 0 ? scene : -scene);
    }
  }
}

}  // namespace weir::ref
