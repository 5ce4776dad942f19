// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/experts.h"

#include <vector>

#include "backend/cpu/testing.h"
#include "gtest/gtest.h"

namespace weir::cpu {
namespace {

// The reference's bytes, for any number of threads.
TEST(ExpertRows, EqualTheReference) {
  Rng rng(4);
  for (const int64_t n_rows : {0, 1, 5, 300}) {
    for (const int64_t dim : {1, 15, 17, 1000}) {
      const int64_t n_all = 40;
      std::vector<int32_t> rows(static_cast<size_t>(n_rows));
      for (int32_t& row : rows) row = static_cast<int32_t>(rng.Below(n_all));
      const std::vector<float> all = Normals(rng, n_all * dim), weights = Normals(rng, n_rows);
      std::vector<float> gathered(static_cast<size_t>(n_rows * dim)), sums = all;
      ref::GatherRows({all.data(), rows.data(), gathered.data(), n_rows, dim});
      ref::ScatterAddRows({gathered.data(), rows.data(), weights.data(), sums.data(), n_rows, dim});
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        std::vector<float> got(gathered.size()), got_sums = all;
        GatherRows({all.data(), rows.data(), got.data(), n_rows, dim}, pool);
        EXPECT_EQ(got, gathered);
        ScatterAddRows({got.data(), rows.data(), weights.data(), got_sums.data(), n_rows, dim}, pool);
        EXPECT_EQ(got_sums, sums) << n_rows << " rows of " << dim;
      }
    }
  }
}

}  // namespace
}  // namespace weir::cpu
