// SPDX-License-Identifier: Apache-2.0
// Clusters of rows: obvious groups, rows that are all equal, sizes at their bounds. conformance/frames_test.cc compares
// whole encoders with the reference.
#include "vision/dpc_knn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/rng.h"

namespace weir {
namespace {

// Clusters, in scratch with guarded bounds.
std::vector<int32_t> Clusters(const std::vector<float>& x, int64_t n, int64_t n_clusters, int64_t k) {
  const int64_t bytes = ClusterScratchBytes(n, n_clusters);
  std::vector<uint8_t> memory(static_cast<size_t>(bytes) + 128, 0xa5);
  uint8_t* scratch = memory.data() + 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64;
  std::vector<int32_t> out(static_cast<size_t>(n), -1);
  ClusterRows(x.data(), n, std::ssize(x) / n, n_clusters, k, out.data(), scratch);
  for (const uint8_t* p = scratch + bytes; p < memory.data() + memory.size(); ++p) EXPECT_EQ(*p, 0xa5);
  return out;
}

TEST(DpcKnn, FindsGroupsAndTheirMeans) {
  constexpr int64_t kN = 60, kCols = 11;
  Rng rng(7);
  std::vector<float> x;
  for (int64_t i = 0; i < kN * kCols; ++i) {
    const int64_t group = i / kCols % 3;
    x.push_back(static_cast<float>(i % kCols == group ? 10 : 0) + static_cast<float>(rng.Below(1000)) / 2000);
  }
  const std::vector<int32_t> cluster = Clusters(x, kN, 3, 5);
  for (int64_t i = 3; i < kN; ++i) EXPECT_EQ(cluster[i], cluster[i - 3]);
  EXPECT_EQ(std::set<int32_t>(cluster.begin(), cluster.end()), (std::set<int32_t>{0, 1, 2}));
  std::vector<float> means(3 * kCols);
  MergeRows(x.data(), kN, kCols, cluster.data(), 3, means.data());
  for (int64_t group = 0; group < 3; ++group) {
    double sum = 0;
    for (int64_t i = group; i < kN; i += 3) sum += x[i * kCols + group];
    EXPECT_NEAR(means[cluster[group] * kCols + group], sum / 20, 1e-4);
  }
}

TEST(DpcKnn, EqualRowsStillMakeEveryCluster) {
  const std::vector<float> x(8 * 3, 1.5f);
  const std::vector<int32_t> cluster = Clusters(x, 8, 4, 5);
  EXPECT_EQ(std::set<int32_t>(cluster.begin(), cluster.end()), (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(cluster, Clusters(x, 8, 4, 5));
}

TEST(DpcKnn, AsManyClustersAsRowsAndOneOfAll) {
  Rng rng(3);
  std::vector<float> x(6 * 5);
  for (float& v : x) v = static_cast<float>(rng.Below(100));
  std::vector<int32_t> cluster = Clusters(x, 6, 6, 3);
  std::sort(cluster.begin(), cluster.end());
  EXPECT_EQ(cluster, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Clusters(x, 6, 1, 6), std::vector<int32_t>(6, 0));
  EXPECT_EQ(Clusters({1, 2, 3}, 1, 1, 1), std::vector<int32_t>(1, 0));
}

}  // namespace
}  // namespace weir
