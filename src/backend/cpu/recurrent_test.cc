// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/recurrent.h"

#include <cmath>
#include <cstring>

#include "backend/cpu/testing.h"
#include "gtest/gtest.h"

namespace weir::cpu {
namespace {

TEST(CpuCausalConv, EqualsReferenceInOneCallAndInMany) {
  Rng rng(1);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(3)};
  for (const int64_t n_channels : {1, 7, 64, 300}) {
    for (const int64_t n_taps : {1, 3, 4}) {
      for (const bool silu : {false, true}) {
        const int64_t n_rows = 9;
        const std::vector<float> x = Normals(rng, n_rows * n_channels), w = Normals(rng, n_taps * n_channels);
        const std::vector<float> bias = Normals(rng, n_channels), before = Normals(rng, n_taps * n_channels);
        std::vector<float> expected(x.size()), expected_state = before;
        ref::CausalConv({x.data(), w.data(), bias.data(), expected_state.data(), expected.data(), n_rows, n_channels,
                         n_taps, silu});
        ForEachTarget([&] {
          for (ThreadPool& pool : pools) {
            std::vector<float> y = x, state = before;  // in place
            CausalConv({y.data(), w.data(), bias.data(), state.data(), y.data(), n_rows, n_channels, n_taps, silu},
                       pool);
            for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 2e-6f * (1 + std::fabs(expected[i])));
            ASSERT_EQ(std::memcmp(state.data(), expected_state.data(), state.size() * sizeof(float)), 0);
            std::vector<float> pieces = x, piece_state = before;
            for (int64_t done = 0; done < n_rows;) {
              const int64_t n = done == 0 ? 1 : std::min<int64_t>(5, n_rows - done);
              float* const rows = pieces.data() + done * n_channels;
              CausalConv({rows, w.data(), bias.data(), piece_state.data(), rows, n, n_channels, n_taps, silu}, pool);
              done += n;
            }
            ASSERT_EQ(std::memcmp(pieces.data(), y.data(), y.size() * sizeof(float)), 0);
            ASSERT_EQ(std::memcmp(piece_state.data(), state.data(), state.size() * sizeof(float)), 0);
          }
        });
      }
    }
  }
}

TEST(CpuDeltaRule, EqualsReferenceInOneCallAndInMany) {
  Rng rng(2);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(3)};
  struct Shape {
    int32_t n_k_heads, n_v_heads, d_k, d_v;
  };
  for (const Shape s : {Shape{1, 1, 1, 1},
                        {2, 4, 16, 32},
                        {2, 2, 33, 64},
                        {1, 3, 128, 128},
                        {2, 4, 5, 24},
                        {1, 2, 16, 80},
                        {1, 1, 7, 9}}) {
    const int64_t n_rows = 11;
    std::vector<float> q = Normals(rng, n_rows * s.n_k_heads * s.d_k), k = Normals(rng, n_rows * s.n_k_heads * s.d_k);
    for (int64_t head = 0; head < n_rows * s.n_k_heads; ++head) {  // keys of length 1
      double sum = 0;
      for (int64_t i = 0; i < s.d_k; ++i) sum += std::pow(k[head * s.d_k + i], 2);
      for (int64_t i = 0; i < s.d_k; ++i) k[head * s.d_k + i] /= static_cast<float>(std::sqrt(sum));
    }
    const std::vector<float> v = Normals(rng, n_rows * s.n_v_heads * s.d_v), alpha = Normals(rng, n_rows * s.n_v_heads);
    const std::vector<float> beta = Normals(rng, n_rows * s.n_v_heads), dt_bias = Normals(rng, s.n_v_heads);
    std::vector<float> a = Normals(rng, s.n_v_heads);
    for (float& value : a) value = -std::fabs(value);
    const std::vector<float> before = Normals(rng, int64_t{s.n_v_heads} * s.d_k * s.d_v);
    std::vector<float> scratch(static_cast<size_t>(DeltaRuleScratchFloats(n_rows, s.n_v_heads)));
    const auto args = [&](int64_t first, int64_t n, std::vector<float>& state, std::vector<float>& out) {
      return DeltaRuleArgs{.q = q.data() + first * s.n_k_heads * s.d_k,
                           .k = k.data() + first * s.n_k_heads * s.d_k,
                           .v = v.data() + first * s.n_v_heads * s.d_v,
                           .alpha = alpha.data() + first * s.n_v_heads,
                           .beta = beta.data() + first * s.n_v_heads,
                           .a = a.data(),
                           .dt_bias = dt_bias.data(),
                           .state = state.data(),
                           .out = out.data() + first * s.n_v_heads * s.d_v,
                           .scratch = scratch.data(),
                           .n_rows = n,
                           .n_k_heads = s.n_k_heads,
                           .n_v_heads = s.n_v_heads,
                           .d_k = s.d_k,
                           .d_v = s.d_v,
                           .grouped = s.d_v == 64};
    };
    std::vector<float> expected(v.size()), expected_state = before;
    ref::DeltaRule(args(0, n_rows, expected_state, expected));
    ForEachTarget([&] {
      std::vector<float> first, first_state;
      for (ThreadPool& pool : pools) {
        for (const int64_t piece : {n_rows, int64_t{1}, int64_t{4}}) {
          std::vector<float> out(v.size()), state = before;
          for (int64_t done = 0; done < n_rows; done += piece) {
            DeltaRule(args(done, std::min(piece, n_rows - done), state, out), pool);
          }
          if (first.empty()) first = out, first_state = state;
          ASSERT_EQ(std::memcmp(out.data(), first.data(), out.size() * sizeof(float)), 0) << piece;
          ASSERT_EQ(std::memcmp(state.data(), first_state.data(), state.size() * sizeof(float)), 0) << piece;
        }
      }
      for (size_t i = 0; i < first.size(); ++i)
        ASSERT_NEAR(first[i], expected[i], 2e-5f * (1 + std::fabs(expected[i])));
      for (size_t i = 0; i < first_state.size(); ++i) ASSERT_NEAR(first_state[i], expected_state[i], 2e-5f) << s.d_v;
    });
  }
}

TEST(CpuSsmScan, EqualsReferenceInOneCallAndInMany) {
  Rng rng(3);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(3)};
  struct Shape {
    int32_t n_groups, n_heads, d_state, d_head;
  };
  for (const Shape s : {Shape{1, 1, 1, 1},
                        {1, 4, 16, 32},
                        {2, 4, 33, 64},
                        {1, 2, 128, 64},
                        {2, 2, 5, 24},
                        {2, 4, 128, 80},
                        {1, 1, 7, 9}}) {
    const int64_t n_rows = 11;
    const std::vector<float> x = Normals(rng, n_rows * s.n_heads * s.d_head), dt = Normals(rng, n_rows * s.n_heads);
    const std::vector<float> b = Normals(rng, n_rows * s.n_groups * s.d_state);
    const std::vector<float> c = Normals(rng, n_rows * s.n_groups * s.d_state);
    const std::vector<float> dt_bias = Normals(rng, s.n_heads), d = Normals(rng, s.n_heads);
    std::vector<float> a = Normals(rng, s.n_heads);
    for (float& value : a) value = -std::fabs(value);
    const std::vector<float> before = Normals(rng, int64_t{s.n_heads} * s.d_state * s.d_head);
    std::vector<float> scratch(static_cast<size_t>(2 * n_rows * s.n_heads));
    const auto args = [&](int64_t first, int64_t n, std::vector<float>& state, std::vector<float>& out) {
      return SsmScanArgs{.x = x.data() + first * s.n_heads * s.d_head,
                         .b = b.data() + first * s.n_groups * s.d_state,
                         .c = c.data() + first * s.n_groups * s.d_state,
                         .dt = dt.data() + first * s.n_heads,
                         .dt_bias = dt_bias.data(),
                         .a = a.data(),
                         .d = d.data(),
                         .state = state.data(),
                         .out = out.data() + first * s.n_heads * s.d_head,
                         .scratch = scratch.data(),
                         .n_rows = n,
                         .n_groups = s.n_groups,
                         .n_heads = s.n_heads,
                         .d_state = s.d_state,
                         .d_head = s.d_head};
    };
    std::vector<float> expected(x.size()), expected_state = before;
    ref::SsmScan(args(0, n_rows, expected_state, expected));
    ForEachTarget([&] {
      std::vector<float> first, first_state;
      for (ThreadPool& pool : pools) {
        for (const int64_t piece : {n_rows, int64_t{1}, int64_t{4}}) {
          std::vector<float> out(x.size()), state = before;
          for (int64_t done = 0; done < n_rows; done += piece) {
            SsmScan(args(done, std::min(piece, n_rows - done), state, out), pool);
          }
          if (first.empty()) first = out, first_state = state;
          ASSERT_EQ(std::memcmp(out.data(), first.data(), out.size() * sizeof(float)), 0) << piece;
          ASSERT_EQ(std::memcmp(state.data(), first_state.data(), state.size() * sizeof(float)), 0) << piece;
        }
      }
      for (size_t i = 0; i < first.size(); ++i)
        ASSERT_NEAR(first[i], expected[i], 5e-5f * (1 + std::fabs(expected[i])));
      for (size_t i = 0; i < first_state.size(); ++i) {
        ASSERT_NEAR(first_state[i], expected_state[i], 2e-5f * (1 + std::fabs(expected_state[i])));
      }
    });
  }
}

}  // namespace
}  // namespace weir::cpu
