// SPDX-License-Identifier: Apache-2.0
#include "vision/dpc_knn.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/workspace.h"

namespace weir {
namespace {

constexpr int64_t kMostNeighbours = 16;

// Squared, before scaling. Sums in a fixed number of lanes: the compiler may vectorise them without changing results.
double Distance2(const float* a, const float* b, int64_t n) {
  constexpr int64_t kLanes = 8;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const float diff = a[i + l] - b[i + l];
      lanes[l] += diff * diff;
    }
  }
  double sum = 0;
  for (; i < n; ++i) sum += static_cast<double>(a[i] - b[i]) * (a[i] - b[i]);
  for (const float lane : lanes) sum += lane;
  return sum;
}

struct Scratch {
  double *density, *score;
  int32_t *order, *centre;
};
Scratch LayOut(Workspace* space, int64_t n, int64_t n_clusters) {
  Scratch s;
  s.density = reinterpret_cast<double*>(space->Bytes(n * 8));
  s.score = reinterpret_cast<double*>(space->Bytes(n * 8));
  s.order = reinterpret_cast<int32_t*>(space->Bytes(n * 4));
  s.centre = reinterpret_cast<int32_t*>(space->Bytes(n_clusters * 4));
  return s;
}

}  // namespace

int64_t ClusterScratchBytes(int64_t n, int64_t n_clusters) {
  Workspace space(nullptr);
  LayOut(&space, n, n_clusters);
  return space.used();
}

void ClusterRows(const float* x, int64_t n, int64_t n_cols, int64_t n_clusters, int64_t k, int32_t* cluster,
                 void* scratch) {
  Workspace space(static_cast<uint8_t*>(scratch));
  const Scratch s = LayOut(&space, n, n_clusters);
  const double scale = 1.0 / static_cast<double>(n_cols);
  k = std::min(k, kMostNeighbours);
  const auto distance2 = [&](int64_t i, int64_t j) {
    return scale * Distance2(x + i * n_cols, x + j * n_cols, n_cols);
  };
  double farthest2 = 0;
  for (int64_t i = 0; i < n; ++i) {
    double nearest[kMostNeighbours + 1];  // ascending
    int64_t n_near = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double d2 = i == j ? 0 : distance2(i, j);
      farthest2 = std::max(farthest2, d2);
      if (n_near == k && d2 >= nearest[n_near - 1]) continue;
      int64_t at = n_near;
      for (; at > 0 && nearest[at - 1] > d2; --at) nearest[at] = nearest[at - 1];
      nearest[at] = d2;
      n_near = std::min(n_near + 1, k);
    }
    s.density[i] = std::exp(-std::accumulate(nearest, nearest + n_near, 0.0) / static_cast<double>(n_near));
  }
  for (int64_t i = 0; i < n; ++i) {
    double best2 = farthest2;
    for (int64_t j = 0; j < n; ++j) {
      const bool denser = s.density[j] > s.density[i] || (s.density[j] == s.density[i] && j < i);
      if (denser) best2 = std::min(best2, distance2(i, j));
    }
    const double score = s.density[i] * std::sqrt(best2);
    s.score[i] = std::isnan(score) ? -1 : score;  // needs a strict order; NaN is rejected later
  }
  std::iota(s.order, s.order + n, 0);
  std::partial_sort(s.order, s.order + n_clusters, s.order + n,
                    [&](int32_t a, int32_t b) { return s.score[a] != s.score[b] ? s.score[a] > s.score[b] : a < b; });
  std::copy(s.order, s.order + n_clusters, s.centre);
  for (int64_t i = 0; i < n; ++i) {
    double best2 = 0;
    for (int64_t c = 0; c < n_clusters; ++c) {
      const double d2 = distance2(i, s.centre[c]);
      if (c > 0 && d2 >= best2) continue;
      best2 = d2;
      cluster[i] = static_cast<int32_t>(c);
    }
  }
  // With equal rows, a centre would join another cluster.
  for (int64_t c = 0; c < n_clusters; ++c) cluster[s.centre[c]] = static_cast<int32_t>(c);
}

void MergeRows(const float* x, int64_t n, int64_t n_cols, const int32_t* cluster, int64_t n_clusters, float* out) {
  for (int64_t c = 0; c < n_clusters; ++c) {
    float* to = out + c * n_cols;
    std::fill_n(to, n_cols, 0.0f);
    int64_t n_members = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (cluster[i] != c) continue;
      ++n_members;
      for (int64_t j = 0; j < n_cols; ++j) to[j] += x[i * n_cols + j];
    }
    for (int64_t j = 0; j < n_cols; ++j) to[j] /= static_cast<float>(n_members);
  }
}

}  // namespace weir
