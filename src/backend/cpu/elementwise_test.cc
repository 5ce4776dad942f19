// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/testing.h"
#include "gtest/gtest.h"

namespace weir::cpu {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(CpuRmsNorm, EqualsReference) {
  Rng rng(1);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  for (const int64_t dim : {1, 3, 16, 31, 64, 577, 2048}) {
    for (const int64_t n_rows : {1, 2, 37}) {
      // At an odd float address.
      const std::vector<float> x = Normals(rng, n_rows * dim + 1), w = Normals(rng, dim + 1);
      std::vector<float> expected(static_cast<size_t>(n_rows * dim + 1));
      ref::RmsNorm({x.data() + 1, w.data() + 1, expected.data() + 1, n_rows, dim, 1e-5f});
      ForEachTarget([&] {
        std::vector<float> first;
        for (ThreadPool& pool : pools) {
          std::vector<float> y(static_cast<size_t>(n_rows * dim + 2), kNan);
          RmsNorm({x.data() + 1, w.data() + 1, y.data() + 1, n_rows, dim, 1e-5f}, pool);
          ASSERT_TRUE(std::isnan(y.front()) && std::isnan(y.back())) << "wrote outside";
          for (int64_t i = 1; i <= n_rows * dim; ++i) {
            ASSERT_NEAR(y[i], expected[i], 4e-7f * std::fabs(expected[i]) + 1e-37f) << "dim " << dim;
          }
          if (first.empty()) first = y;
          ASSERT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0) << pool.n_threads() << " threads";
        }
        std::vector<float> in_place(x.begin() + 1, x.end());
        RmsNorm({in_place.data(), w.data() + 1, in_place.data(), n_rows, dim, 1e-5f}, pools[0]);
        ASSERT_EQ(std::memcmp(first.data() + 1, in_place.data(), in_place.size() * sizeof(float)), 0);
      });
    }
  }
}

TEST(CpuRmsNorm, RowsTakeTurnsWithTheWeights) {
  Rng rng(9);
  ThreadPool pool(2);
  const std::vector<float> x = Normals(rng, 7 * 5000), w = Normals(rng, 3 * 5000);
  std::vector<float> expected(x.size()), y(x.size());
  ref::RmsNorm({x.data(), w.data(), expected.data(), 7, 5000, 1e-5f, 3});
  RmsNorm({x.data(), w.data(), y.data(), 7, 5000, 1e-5f, 3}, pool);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 4e-7f * std::fabs(expected[i]) + 1e-37f);
}

TEST(CpuLayerNorm, EqualsReference) {
  Rng rng(5);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  for (const int64_t dim : {1, 3, 16, 31, 64, 577, 1024}) {
    for (const int64_t n_rows : {1, 2, 37}) {
      std::vector<float> x = Normals(rng, n_rows * dim + 1);
      const std::vector<float> w = Normals(rng, dim + 1), b = Normals(rng, dim + 1);
      for (float& v : x) v += 3;  // a mean worth subtracting
      std::vector<float> expected(static_cast<size_t>(n_rows * dim));
      ref::LayerNorm({x.data() + 1, w.data() + 1, b.data() + 1, expected.data(), n_rows, dim, 1e-5f});
      ForEachTarget([&] {
        std::vector<float> first;
        for (ThreadPool& pool : pools) {
          std::vector<float> y(static_cast<size_t>(n_rows * dim + 2), kNan);
          LayerNorm({x.data() + 1, w.data() + 1, b.data() + 1, y.data() + 1, n_rows, dim, 1e-5f}, pool);
          ASSERT_TRUE(std::isnan(y.front()) && std::isnan(y.back())) << "wrote outside";
          for (int64_t i = 0; i < n_rows * dim; ++i) ASSERT_NEAR(y[i + 1], expected[i], 2e-5f) << "dim " << dim;
          if (first.empty()) first = y;
          ASSERT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0) << pool.n_threads() << " threads";
        }
        std::vector<float> in_place(x.begin() + 1, x.end());
        LayerNorm({in_place.data(), w.data() + 1, b.data() + 1, in_place.data(), n_rows, dim, 1e-5f}, pools[0]);
        ASSERT_EQ(std::memcmp(first.data() + 1, in_place.data(), in_place.size() * sizeof(float)), 0);
      });
    }
  }
}

TEST(CpuGelu, EqualsReference) {
  Rng rng(6);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  for (const GeluKind kind : {GeluKind::kErf, GeluKind::kQuick, GeluKind::kTanh}) {
    for (const int64_t n : {1, 15, 64, 8192, 20001}) {
      std::vector<float> x = Normals(rng, n + 1);
      for (int64_t i = 0; i <= n; ++i) x[i] *= static_cast<float>(std::exp2(static_cast<double>(i % 9) - 3));
      std::vector<float> expected(static_cast<size_t>(n));
      ref::Gelu({kind, x.data() + 1, expected.data(), n});
      ForEachTarget([&] {
        std::vector<float> first;
        for (ThreadPool& pool : pools) {
          std::vector<float> y(static_cast<size_t>(n + 2), kNan);
          Gelu({kind, x.data() + 1, y.data() + 1, n}, pool);
          ASSERT_TRUE(std::isnan(y.front()) && std::isnan(y.back())) << "wrote outside";
          for (int64_t i = 0; i < n; ++i) {
            ASSERT_NEAR(y[i + 1], expected[i], 4e-7f * std::max(1.0f, std::fabs(x[i + 1]))) << "x " << x[i + 1];
          }
          if (first.empty()) first = y;
          ASSERT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0) << pool.n_threads() << " threads";
        }
      });
    }
    const float extremes[] = {-1e30f, -90, -60, 0, 60, 1e30f, kNan};
    for (const float x : extremes) {
      ForEachTarget([&] {
        float y = 7;
        Gelu({kind, &x, &y, 1}, pools[0]);
        if (std::isnan(x)) {
          EXPECT_TRUE(std::isnan(y));
        } else {
          EXPECT_EQ(y, std::max(x, 0.0f));
        }
      });
    }
  }
}

TEST(CpuRelu, EqualsReference) {
  Rng rng(7);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(3)};
  for (const int64_t n : {1, 15, 64, 8192, 20001}) {
    std::vector<float> x = Normals(rng, n + 1);
    x.back() = kNan;
    std::vector<float> expected(static_cast<size_t>(n));
    ref::Relu({x.data() + 1, expected.data(), n});
    ForEachTarget([&] {
      for (ThreadPool& pool : pools) {
        std::vector<float> y(static_cast<size_t>(n + 2), kNan);
        Relu({x.data() + 1, y.data() + 1, n}, pool);
        ASSERT_TRUE(std::isnan(y.front()) && std::isnan(y.back())) << "wrote outside";
        for (int64_t i = 0; i + 1 < n; ++i) ASSERT_EQ(y[i + 1], expected[i]) << "x " << x[i + 1];
        ASSERT_TRUE(std::isnan(y[n]));
      }
    });
  }
}

TEST(CpuClamp, EqualsReference) {
  Rng rng(9);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(3)};
  for (const int64_t n : {1, 15, 64, 8192, 20001}) {
    std::vector<float> x = Normals(rng, n + 1);
    if (n > 15) x[7] = std::numeric_limits<float>::infinity();
    x.back() = kNan;
    std::vector<float> expected(static_cast<size_t>(n));
    ref::Clamp({-0.5f, 1.25f, x.data() + 1, expected.data(), n});
    ForEachTarget([&] {
      for (ThreadPool& pool : pools) {
        std::vector<float> y(static_cast<size_t>(n + 2), kNan);
        Clamp({-0.5f, 1.25f, x.data() + 1, y.data() + 1, n}, pool);
        ASSERT_TRUE(std::isnan(y.front()) && std::isnan(y.back())) << "wrote outside";
        for (int64_t i = 0; i + 1 < n; ++i) ASSERT_EQ(y[i + 1], expected[i]) << "x " << x[i + 1];
        ASSERT_TRUE(std::isnan(y[n]));
      }
    });
  }
}

TEST(CpuSigmoidGate, EqualsReference) {
  Rng rng(8);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(3)};
  for (const int64_t n : {1, 15, 64, 20001}) {
    std::vector<float> gate = Normals(rng, n);
    const std::vector<float> x = Normals(rng, n);
    for (int64_t i = 0; i < n; ++i) gate[i] *= static_cast<float>(std::exp2(static_cast<double>(i % 9) - 3));
    std::vector<float> expected(static_cast<size_t>(n));
    ref::SigmoidGate({gate.data(), x.data(), expected.data(), n});
    ForEachTarget([&] {
      for (ThreadPool& pool : pools) {
        std::vector<float> y = x;  // in place
        SigmoidGate({gate.data(), y.data(), y.data(), n}, pool);
        for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y[i], expected[i], 4e-7f * std::fabs(expected[i]) + 1e-36f);
      }
    });
  }
}

TEST(CpuSwiGlu, EqualsReference) {
  Rng rng(2);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  for (const int64_t n : {1, 15, 64, 8192, 20001}) {
    std::vector<float> gate = Normals(rng, n + 1), up = Normals(rng, n + 1);
    for (int64_t i = 0; i <= n; ++i) gate[i] *= static_cast<float>(std::exp2(static_cast<double>(i % 9) - 3));
    std::vector<float> expected(static_cast<size_t>(n + 1));
    ref::SwiGlu({gate.data() + 1, up.data() + 1, expected.data() + 1, n});
    ForEachTarget([&] {
      std::vector<float> first;
      for (ThreadPool& pool : pools) {
        std::vector<float> y(static_cast<size_t>(n + 2), kNan);
        SwiGlu({gate.data() + 1, up.data() + 1, y.data() + 1, n}, pool);
        ASSERT_TRUE(std::isnan(y.front()) && std::isnan(y.back())) << "wrote outside";
        for (int64_t i = 1; i <= n; ++i) {
          ASSERT_NEAR(y[i], expected[i], 4e-7f * std::fabs(expected[i]) + 1e-36f * std::fabs(up[i]))
              << "gate " << gate[i];
        }
        if (first.empty()) first = y;
        ASSERT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0) << pool.n_threads() << " threads";
      }
    });
  }
}

TEST(CpuSwiGlu, Extremes) {
  const std::vector<float> gate = {0, -0.0f, 88, 89, 1e4f, 3e38f, -87, -88, -200, -1e4f, -3e38f, kNan};
  const std::vector<float> up(gate.size(), 1.0f);
  ThreadPool pool(1);
  ForEachTarget([&] {
    std::vector<float> y(gate.size(), kNan), expected(gate.size());
    ref::SwiGlu({gate.data(), up.data(), expected.data(), 12});
    SwiGlu({gate.data(), up.data(), y.data(), 12}, pool);
    for (size_t i = 0; i + 1 < gate.size(); ++i) {
      EXPECT_NEAR(y[i], expected[i], 4e-7f * std::fabs(expected[i]) + 1e-36f) << "gate " << gate[i];
    }
    EXPECT_TRUE(std::isnan(y.back()));
  });
}

TEST(CpuClampedSwiGlu, EqualsReference) {
  Rng rng(9);
  ThreadPool one(1), three(3);
  for (const int64_t n : {1, 15, 64, 20001}) {
    std::vector<float> gate = Normals(rng, n + 1), up = Normals(rng, n + 1);
    for (int64_t i = 0; i <= n; ++i) {
      gate[i] *= static_cast<float>(std::exp2(static_cast<double>(i % 9) - 3));
      up[i] *= static_cast<float>(std::exp2(static_cast<double>(i % 7) - 3));
    }
    if (n > 9) gate[5] = up[7] = kNan;
    std::vector<float> expected(static_cast<size_t>(n + 1));
    ref::ClampedSwiGlu({gate.data() + 1, up.data() + 1, expected.data() + 1, n});
    ForEachTarget([&] {
      std::vector<float> y(static_cast<size_t>(n + 2), kNan), other = y;
      ClampedSwiGlu({gate.data() + 1, up.data() + 1, y.data() + 1, n}, one);
      ClampedSwiGlu({gate.data() + 1, up.data() + 1, other.data() + 1, n}, three);
      ASSERT_EQ(std::memcmp(other.data(), y.data(), y.size() * sizeof(float)), 0);
      ASSERT_TRUE(std::isnan(y.front()) && std::isnan(y.back())) << "wrote outside";
      for (int64_t i = 1; i <= n; ++i) {
        ASSERT_EQ(std::isnan(y[i]), std::isnan(expected[i])) << i;
        if (std::isnan(y[i])) continue;
        ASSERT_NEAR(y[i], expected[i], 6e-6f * std::fabs(expected[i]) + 1e-34f)
            << "gate " << gate[i] << " up " << up[i];
      }
    });
  }
}

TEST(CpuGeGlu, EqualsReference) {
  Rng rng(7);
  ThreadPool one(1), three(3);
  for (const int64_t n : {1, 15, 64, 20001}) {
    std::vector<float> gate = Normals(rng, n + 1), up = Normals(rng, n + 1);
    for (int64_t i = 0; i <= n; ++i) gate[i] *= static_cast<float>(std::exp2(static_cast<double>(i % 9) - 3));
    std::vector<float> expected(static_cast<size_t>(n));
    ref::GeGlu({gate.data() + 1, up.data() + 1, expected.data(), n});
    ForEachTarget([&] {
      std::vector<float> y(static_cast<size_t>(n + 2), kNan), again = y;
      GeGlu({gate.data() + 1, up.data() + 1, y.data() + 1, n}, one);
      ASSERT_TRUE(std::isnan(y.front()) && std::isnan(y.back())) << "wrote outside";
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_NEAR(y[i + 1], expected[i], 1e-6f * std::max(1.0f, std::fabs(gate[i + 1])) * std::fabs(up[i + 1]));
      }
      GeGlu({gate.data() + 1, up.data() + 1, again.data() + 1, n}, three);
      ASSERT_EQ(std::memcmp(again.data(), y.data(), y.size() * sizeof(float)), 0);
    });
  }
}

TEST(CpuSoftCap, EqualsReference) {
  Rng rng(8);
  ThreadPool one(1), three(3);
  for (const int64_t n : {1, 15, 64, 20001}) {
    std::vector<float> x = Normals(rng, n + 1);
    for (int64_t i = 0; i <= n; ++i) x[i] *= static_cast<float>(std::exp2(static_cast<double>(i % 14) - 3));
    std::vector<float> expected(static_cast<size_t>(n));
    ref::SoftCap({30, x.data() + 1, expected.data(), n});
    ForEachTarget([&] {
      std::vector<float> y(static_cast<size_t>(n + 2), kNan), again = y;
      SoftCap({30, x.data() + 1, y.data() + 1, n}, one);
      ASSERT_TRUE(std::isnan(y.front()) && std::isnan(y.back())) << "wrote outside";
      for (int64_t i = 0; i < n; ++i) ASSERT_NEAR(y[i + 1], expected[i], 1e-6f * std::fabs(expected[i])) << x[i + 1];
      SoftCap({30, x.data() + 1, again.data() + 1, n}, three);
      ASSERT_EQ(std::memcmp(again.data(), y.data(), y.size() * sizeof(float)), 0);
    });
  }
  const float extremes[] = {-std::numeric_limits<float>::infinity(), -3e38f, 3e38f, kNan};
  for (const float x : extremes) {
    ForEachTarget([&] {
      float y = 7;
      SoftCap({30, &x, &y, 1}, one);
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(y));
      } else {
        EXPECT_FLOAT_EQ(y, std::copysign(30.0f, x));
      }
    });
  }
}

}  // namespace
}  // namespace weir::cpu
