// Row-wise operations and angles on a device against the scalar reference.
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
      ref_->LayerNorm({x.data(), w.data(), b.data(), expected.data(), n_rows, dim, 1e-5f});
      float* in_place = Put(x);
      backend_->LayerNorm({in_place, Put(w), Put(b), in_place, n_rows, dim, 1e-5f});
      EXPECT_LT(Distance(Get(in_place, n_rows * dim), expected), 2e-5) << dim;
    }
  }
}

TEST_P(RowsTest, ElementByElement) {
  const int64_t n = 1037;
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

TEST_P(RowsTest, AttentionOfPicturesRunsOnTheHost) {
  const int64_t n_q = 5, n_kv = 9, heads = 3, dim = 16, stride = heads * dim;
  const std::vector<float> q = cpu::Normals(rng_, n_q * stride), k = cpu::Normals(rng_, n_kv * stride),
                           v = cpu::Normals(rng_, n_kv * stride);
  std::vector<float> expected(q.size()), weights(2 * n_kv);
  const FullAttentionArgs host = {heads,    dim,      0.25f,  q.data(), stride,          n_q,
                                  k.data(), v.data(), stride, n_kv,     expected.data(), stride};
  FullAttentionArgs args = host;
  args.q = Put(q), args.k = Put(k), args.v = Put(v), args.out = Poisoned(n_q * stride);
  ref_->FullAttention(host);
  backend_->FullAttention(args);
  EXPECT_EQ(Get(args.out, n_q * stride), expected);
  float* device_weights = Poisoned(2 * n_kv);
  ref_->FullAttentionWeights({host, 1, 2, 2, weights.data()});
  backend_->FullAttentionWeights({args, 1, 2, 2, device_weights});
  EXPECT_EQ(Get(device_weights, 2 * n_kv), weights);
}

WEIR_ON_DEVICES(RowsTest);

}  // namespace
}  // namespace weir::testing
