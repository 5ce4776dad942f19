// SPDX-License-Identifier: Apache-2.0
// Row-wise operations and angles on a device against the scalar reference.
#include <array>

#include "gpu/devices.h"
#include "ops/rope.h"

namespace weir::testing {
namespace {

class RowsTest : public DeviceTest {
 protected:
  Rng rng_{5};
};

TEST_P(RowsTest, Norms) {
  for (const int64_t dim : {1, 31, 64, 300, 5000}) {
    for (const int64_t n_rows : {1, 7}) {
      std::vector<float> x = cpu::Normals(rng_, n_rows * dim), w = cpu::Normals(rng_, dim), b = cpu::Normals(rng_, dim);
      for (float& value : x) value = 3 * value + 100;  // a mean that a careless variance would drown in
      std::vector<float> expected(x.size());
      float* y = Poisoned(n_rows * dim);
      ref_->RmsNorm({x.data(), w.data(), expected.data(), n_rows, dim, 1e-5f});
      backend_->RmsNorm({Put(x), Put(w), y, n_rows, dim, 1e-5f});
      EXPECT_LT(Distance(Get(y, n_rows * dim), expected), 2e-6) << dim;
      const std::vector<float> turns = cpu::Normals(rng_, 3 * dim);
      ref_->RmsNorm({x.data(), turns.data(), expected.data(), n_rows, dim, 1e-5f, 3});
      backend_->RmsNorm({Put(x), Put(turns), y, n_rows, dim, 1e-5f, 3});
      EXPECT_LT(Distance(Get(y, n_rows * dim), expected), 2e-6) << dim;
      ref_->LayerNorm({x.data(), w.data(), b.data(), expected.data(), n_rows, dim, 1e-5f});
      float* in_place = Put(x);
      backend_->LayerNorm({in_place, Put(w), Put(b), in_place, n_rows, dim, 1e-5f});
      EXPECT_LT(Distance(Get(in_place, n_rows * dim), expected), 2e-5) << dim;
    }
  }
}

TEST_P(RowsTest, ElementByElement) {
  const int64_t n = 1041;  // of no vector a multiple, but of 3
  std::vector<float> x = cpu::Normals(rng_, n), z = cpu::Normals(rng_, n), expected(x.size());
  for (float& value : x) value *= 4;
  x[0] = -90, x[1] = 90, x[2] = 0;
  float* y = Poisoned(n);
  const auto check = [&](const char* what) {
    const std::vector<float> got = Get(y, n);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(got[i], expected[i], 2e-6 * (1 + std::fabs(expected[i]))) << what << " of " << x[i] << ", " << z[i];
    }
    backend_->Copy(y, std::vector<float>(x.size(), NAN).data(), n * 4);
  };
  const float *dx = Put(x), *dz = Put(z);
  for (GeluKind kind : {GeluKind::kErf, GeluKind::kQuick, GeluKind::kTanh}) {
    ref_->Gelu({kind, x.data(), expected.data(), n});
    backend_->Gelu({kind, dx, y, n});
    check("gelu");
  }
  ref_->Relu({x.data(), expected.data(), n});
  backend_->Relu({dx, y, n});
  check("relu");
  ref_->SwiGlu({x.data(), z.data(), expected.data(), n});
  backend_->SwiGlu({dx, dz, y, n});
  check("swiglu");
  ref_->GeGlu({x.data(), z.data(), expected.data(), n});
  backend_->GeGlu({dx, dz, y, n});
  check("geglu");
  ref_->SoftCap({3, x.data(), expected.data(), n});
  backend_->SoftCap({3, dx, y, n});
  check("soft cap");
  ref_->Add({x.data(), z.data(), expected.data(), n});
  backend_->Add({dx, dz, y, n});
  check("sum");
  ref_->Mul({x.data(), z.data(), expected.data(), n});
  backend_->Mul({dx, dz, y, n});
  check("product");
  ref_->Mul({x.data(), z.data(), expected.data(), n, n / 3});
  backend_->Mul({dx, dz, y, n, n / 3});
  check("product with a vector that repeats");
  ref_->SigmoidGate({x.data(), z.data(), expected.data(), n});
  backend_->SigmoidGate({dx, dz, y, n});
  check("gated");
  ref_->Scale({0.37f, x.data(), expected.data(), n});
  backend_->Scale({0.37f, dx, y, n});
  check("scaled");
}

TEST_P(RowsTest, AnglesOfFarPositions) {
  RopeConfig config;
  config.n_rot = 48;
  RopeTable rope = std::move(RopeTable::Make(config, 64)).value();
  rope.device = Put(rope.Pack());
  const std::vector<int64_t> pos = {0, 1, 63, 4'000'000'000, 123456789};
  const int64_t n = std::ssize(pos) * 24;
  std::vector<float> cos(static_cast<size_t>(n)), sin(cos.size());
  RopeAngles(rope, pos.data(), std::ssize(pos), cos.data(), sin.data());
  float *device_cos = Poisoned(n), *device_sin = Poisoned(n);
  backend_->RopeAngles(rope, pos, device_cos, device_sin);
  const std::vector<float> got_cos = Get(device_cos, n), got_sin = Get(device_sin, n);
  for (int64_t i = 0; i < n; ++i) {
    EXPECT_NEAR(got_cos[i], cos[i], 1e-6) << i;
    EXPECT_NEAR(got_sin[i], sin[i], 1e-6) << i;
  }
}

TEST_P(RowsTest, SumsOfRows) {
  for (const int64_t dim : {1, 257, 1000}) {
    const std::vector<float> x = cpu::Normals(rng_, 33 * dim);
    std::vector<float> expected(static_cast<size_t>(dim));
    float* y = Poisoned(dim);
    const float* dx = Put(x);
    for (const bool accumulate : {false, true}) {
      ref_->SumRows({x.data(), expected.data(), 33, dim, accumulate});
      backend_->SumRows({dx, y, 33, dim, accumulate});
      EXPECT_EQ(Get(y, dim), expected);
    }
  }
}

TEST_P(RowsTest, SquaresOfPixelsAndOfRows) {
  // Pixels with a rest, in groups, and rows of a shuffle.
  for (SquaresArgs args : {SquaresArgs{nullptr, 3, 37, 29, 1, 7},
                           {nullptr, 3, 20, 40, 1, 5, 2},
                           {nullptr, 1, 8, 12, 10, 4},
                           {nullptr, 2, 18, 12, 3, 2, 3}}) {
    const std::vector<float> x = cpu::Normals(rng_, args.n_planes * args.height * args.width * args.dim);
    const int64_t n = args.n_squares() * args.n_planes * args.side * args.side * args.dim;
    std::vector<float> expected(static_cast<size_t>(n));
    SquaresArgs host = args;
    host.x = x.data(), host.y = expected.data();
    args.x = Put(x), args.y = Poisoned(n);
    ref_->Squares(host);
    backend_->Squares(args);
    EXPECT_EQ(Get(args.y, n), expected) << args.side;
  }
}

TEST_P(RowsTest, RotatedHeads) {
  const int64_t n_rows = 9, n_heads = 3, dim = 20;
  for (const int n_rot : {20, 12}) {
    RopeTable table;
    table.n_rot = n_rot;
    table.magnitude = 1.5f;
    const std::vector<float> cos = cpu::Normals(rng_, n_rows * n_rot / 2), sin = cpu::Normals(rng_, n_rows * n_rot / 2);
    std::vector<float> x = cpu::Normals(rng_, n_rows * n_heads * dim);
    float* dx = Put(x);
    backend_->Rotate({&table, Put(cos), Put(sin), dx, n_rows, n_heads, dim});
    ref_->Rotate({&table, cos.data(), sin.data(), x.data(), n_rows, n_heads, dim});
    EXPECT_LT(Distance(Get(dx, std::ssize(x)), x), 2e-7);
  }
}

// A row's head of another's rows, more queries and keys than a tile and fewer, heads of every width.
TEST_P(RowsTest, AttentionOfPictures) {
  for (const auto& [n_q, n_kv, heads, dim] : {std::array<int64_t, 4>{5, 9, 3, 16},
                                              {1, 1, 1, 1},
                                              {77, 65, 2, 72},
                                              {64, 128, 1, 64},
                                              {3, 70, 2, 104},
                                              {130, 5, 1, 33},
                                              {7, 67, 1, 300}}) {
    const int64_t width = heads * dim, stride = width + 3;
    const std::vector<float> q = cpu::Normals(rng_, n_q * stride), k = cpu::Normals(rng_, n_kv * stride),
                             v = cpu::Normals(rng_, n_kv * stride);
    for (const float scale : {0.25f, -3.0f}) {
      std::vector<float> expected(static_cast<size_t>(n_q * stride), 7.0f);
      const FullAttentionArgs host = {heads,    dim,      scale,  q.data(), stride,          n_q,
                                      k.data(), v.data(), stride, n_kv,     expected.data(), stride};
      FullAttentionArgs args = host;
      args.q = Put(q), args.k = Put(k), args.v = Put(v), args.out = Poisoned(n_q * stride);
      ref_->FullAttention(host);
      backend_->FullAttention(args);
      std::vector<float> got = Get(args.out, n_q * stride);
      for (int64_t r = 0; r < n_q; ++r) {
        for (int64_t i = width; i < stride; ++i) {  // what lies between the rows stays
          EXPECT_TRUE(std::isnan(got[r * stride + i]));
          got[r * stride + i] = 7;
        }
      }
      EXPECT_LT(Distance(got, expected), scale < 0 ? 2e-5 : 3e-6) << n_q << " x " << n_kv << ", heads of " << dim;
      const int64_t first = n_q / 3, n_rows = n_q - first, n = n_rows * n_kv;
      std::vector<float> weights(static_cast<size_t>(n));
      float* device_weights = Poisoned(n);
      ref_->FullAttentionWeights({host, heads - 1, first, n_rows, weights.data()});
      backend_->FullAttentionWeights({args, heads - 1, first, n_rows, device_weights});
      EXPECT_LT(Distance(Get(device_weights, n), weights), scale < 0 ? 2e-5 : 3e-6) << n_q << " x " << n_kv;
    }
  }
}

TEST_P(RowsTest, LargestLogits) {
  void* scratch = Scratch(backend_->TopLogitsScratchBytes(20000));
  for (const int64_t n : {1, 2, 300, 4096, 4097, 20000}) {
    std::vector<float> logits = cpu::Normals(rng_, n);
    for (float& z : logits) z = std::floor(z * 50);  // many are equal
    for (const int round : {0, 1, 2}) {
      // Later rounds: a zero of each sign, then what is no number.
      if (round == 1) logits[0] = -0.0f, logits[n / 2] = 0.0f, logits[n - 1] = 0.0f;
      if (round == 2) logits[n / 3] = -INFINITY, logits[n - 1] = NAN;
      const float* device = Put(logits);
      for (const int64_t k : {1, 2, 40, 256}) {
        if (k > n) continue;
        std::vector<int32_t> ids(static_cast<size_t>(k), -1), expected_ids = ids;
        std::vector<float> values(static_cast<size_t>(k)), expected = values;
        ref_->TopLogits({logits.data(), n, k, expected_ids.data(), expected.data(), nullptr});
        backend_->TopLogits({device, n, k, ids.data(), values.data(), scratch});
        ASSERT_EQ(ids, expected_ids) << k << " of " << n << ", round " << round;
        EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size() * 4), 0) << k << " of " << n;
      }
    }
  }
}

WEIR_ON_DEVICES(RowsTest);

}  // namespace
}  // namespace weir::testing
