// SPDX-License-Identifier: Apache-2.0
#include "ops/vector_scores.h"

#include <cmath>

#include "ops/kv_slots.h"

namespace weir::ref {
namespace {

constexpr int64_t kMaxDim = 1024;

// x / |x|; the zero vector is unchanged.
void Normalise(double* x, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  if (squares == 0) return;
  for (int64_t i = 0; i < n; ++i) x[i] /= std::sqrt(squares);
}

void LoadUnit(const VectorScoresArgs& args, int64_t slot, double* unit) {
  float x[kMaxDim];
  LoadSlot(args.type, args.slots, slot, args.head_dim, x);
  for (int64_t i = 0; i < args.head_dim; ++i) unit[i] = x[i];
  Normalise(unit, args.head_dim);
}

void KeyDiff(const VectorScoresArgs& args) {
  double anchor[kMaxDim] = {}, unit[kMaxDim];
  for (int64_t s = 0; s < args.n_slots; ++s) {
    LoadUnit(args, s, unit);
    for (int64_t i = 0; i < args.head_dim; ++i) anchor[i] += unit[i];
  }
  // The mean's length does not affect a cosine, so the sum is enough.
  Normalise(anchor, args.head_dim);
  for (int64_t s = 0; s < args.n_slots; ++s) {
    LoadUnit(args, s, unit);
    double dot = 0;
    for (int64_t i = 0; i < args.head_dim; ++i) dot += unit[i] * anchor[i];
    args.out[s] = static_cast<float>(-dot);
  }
}

void ValueNorm(const VectorScoresArgs& args) {
  float x[kMaxDim];
  for (int64_t s = 0; s < args.n_slots; ++s) {
    LoadSlot(args.type, args.slots, s, args.head_dim, x);
    double squares = 0;
    for (int64_t i = 0; i < args.head_dim; ++i) squares += static_cast<double>(x[i]) * x[i];
    args.out[s] = static_cast<float>(std::sqrt(squares));
  }
}

}  // namespace

void VectorScores(const VectorScoresArgs& args) {
  switch (args.what) {
    case VectorScore::kNone:
      return;
    case VectorScore::kKeyDiff:
      return KeyDiff(args);
    case VectorScore::kValueNorm:
      return ValueNorm(args);
  }
}

}  // namespace weir::ref
