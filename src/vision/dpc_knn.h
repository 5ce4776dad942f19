// SPDX-License-Identifier: Apache-2.0
// Density peaks among nearest neighbours: which rows belong together ("Study on density peaks clustering based on
// k-nearest neighbors and principal component analysis", Knowledge-Based Systems 2016; as Chat-UniVi, 2311.08046,
// section 3.1, merges visual tokens by it).
//
//   d(i, j)  = |x_i - x_j| / sqrt(n_cols)
//   density  = exp(-mean of the squared d to the k nearest rows, itself among them)
//   distance = d to the nearest row of higher density; to the farthest pair of all rows where there is none
//   centres  = the n_clusters rows of the largest density * distance; every row joins its nearest centre
//
// Published code breaks ties of density by noise of 1e-6; here the earlier row counts as denser.
#pragma once

#include <cstdint>

namespace weir {

// Bytes of scratch that ClusterRows() needs for up to n rows and this many clusters.
int64_t ClusterScratchBytes(int64_t n, int64_t n_clusters);

// x: [n, n_cols] -> cluster: [n], numbers in the order of falling density * distance, every one of them taken.
// REQUIRES: 1 <= k <= n; 1 <= n_clusters <= n; scratch is 64-byte aligned. Takes n^2 * n_cols operations twice, and no
// memory of that size.
void ClusterRows(const float* x, int64_t n, int64_t n_cols, int64_t n_clusters, int64_t k, int32_t* cluster,
                 void* scratch);

// Means of the rows of each cluster, [n_clusters, n_cols]. `out` is not `x`.
void MergeRows(const float* x, int64_t n, int64_t n_cols, const int32_t* cluster, int64_t n_clusters, float* out);

}  // namespace weir
