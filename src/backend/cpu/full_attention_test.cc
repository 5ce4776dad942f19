// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/full_attention.h"

#include <cmath>
#include <limits>

#include "backend/cpu/testing.h"
#include "gtest/gtest.h"

namespace weir::cpu {
namespace {

struct Case {
  int64_t n_heads, head_dim, n_q, n_kv;
};

TEST(CpuFullAttention, EqualsReference) {
  Rng rng(3);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  for (const Case& c : {Case{1, 1, 1, 1}, Case{2, 8, 5, 7}, Case{3, 24, 17, 17}, Case{2, 64, 33, 50},
                        Case{1, 88, 32, 257}, Case{4, 16, 8, 16}}) {
    const int64_t dim = c.n_heads * c.head_dim, q_stride = dim + 3, kv_stride = dim + 1, out_stride = dim + 2;
    std::vector<float> q = Normals(rng, c.n_q * q_stride + 1);
    const std::vector<float> k = Normals(rng, c.n_kv * kv_stride + 1), v = Normals(rng, c.n_kv * kv_stride + 1);
    for (float& value : q) value *= 3;  // some rows attend to few keys
    std::vector<float> expected(static_cast<size_t>(c.n_q * out_stride));
    FullAttentionArgs args;
    args.n_heads = c.n_heads;
    args.head_dim = c.head_dim;
    args.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)));
    args.q = q.data() + 1;
    args.q_stride = q_stride;
    args.n_q = c.n_q;
    args.k = k.data() + 1;
    args.v = v.data() + 1;
    args.kv_stride = kv_stride;
    args.n_kv = c.n_kv;
    args.out = expected.data();
    args.out_stride = out_stride;
    ref::FullAttention(args);
    ForEachTarget([&] {
      std::vector<float> first;
      for (ThreadPool& pool : pools) {
        std::vector<float> out(expected.size(), std::numeric_limits<float>::quiet_NaN());
        // The byte after the scratch is checked.
        const int64_t bytes = FullAttentionScratchBytes(c.n_heads, c.head_dim, c.n_kv, pool.n_threads());
        std::vector<uint8_t> scratch = Scratch(bytes + 64);
        args.out = out.data();
        args.scratch = Aligned(scratch);
        FullAttention(args, pool);
        EXPECT_EQ(static_cast<uint8_t*>(args.scratch)[bytes], 0xff) << "wrote outside its scratch";
        for (int64_t r = 0; r < c.n_q; ++r) {
          for (int64_t i = 0; i < dim; ++i) {
            ASSERT_NEAR(out[r * out_stride + i], expected[r * out_stride + i], 2e-5f)
                << "row " << r << " element " << i;
          }
          for (int64_t i = dim; i < out_stride; ++i)
            ASSERT_TRUE(std::isnan(out[r * out_stride + i])) << "wrote between rows";
        }
        if (first.empty()) first = out;
        ASSERT_EQ(std::memcmp(first.data(), out.data(), out.size() * 4), 0) << pool.n_threads() << " threads";
      }
    });
  }
}

}  // namespace
}  // namespace weir::cpu
