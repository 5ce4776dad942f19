// SPDX-License-Identifier: Apache-2.0
// Layers that keep a state, on a device against the scalar reference: results and states, in one call and in many.
#include "gpu/devices.h"

namespace weir::testing {
namespace {

class RecurrentTest : public DeviceTest {
 protected:
  std::vector<float> Normals(int64_t n) { return cpu::Normals(rng_, n); }
  // Below 0, as decays are.
  std::vector<float> Decays(int64_t n) {
    std::vector<float> out = Normals(n);
    for (float& value : out) value = -std::fabs(value);
    return out;
  }
  Rng rng_{6};
};

TEST_P(RecurrentTest, Convolution) {
  for (const int64_t n_channels : {1, 300}) {
    for (const int64_t n_taps : {1, 4}) {
      const int64_t n_rows = 9;
      const std::vector<float> x = Normals(n_rows * n_channels), w = Normals(n_taps * n_channels);
      const std::vector<float> bias = Normals(n_channels), before = Normals(n_taps * n_channels);
      std::vector<float> y(x.size()), state = before;
      ref_->CausalConv({x.data(), w.data(), bias.data(), state.data(), y.data(), n_rows, n_channels, n_taps, true});
      float *rows = Put(x), *kept = Put(before);
      const float *taps = Put(w), *biases = Put(bias);
      for (int64_t done = 0; done < n_rows;) {
        const int64_t n = done == 0 ? 1 : std::min<int64_t>(5, n_rows - done);
        float* const piece = rows + done * n_channels;
        backend_->CausalConv({piece, taps, biases, kept, piece, n, n_channels, n_taps, true});
        done += n;
      }
      EXPECT_LT(Distance(Get(rows, n_rows * n_channels), y), 2e-6);
      EXPECT_EQ(Get(kept, n_taps * n_channels), state);
    }
  }
}

TEST_P(RecurrentTest, DeltaRule) {
  struct Shape {
    int32_t n_k_heads, n_v_heads, d_k, d_v;
  };
  // The last does not fit a block's shared memory.
  for (const Shape s : {Shape{2, 4, 16, 32}, {2, 2, 33, 64}, {1, 2, 5, 24}, {1, 1, 400, 32}}) {
    const int64_t n_rows = 7, n_k = n_rows * s.n_k_heads * s.d_k, n_v = n_rows * s.n_v_heads * s.d_v;
    const int64_t n_gates = n_rows * s.n_v_heads, n_state = int64_t{s.n_v_heads} * s.d_k * s.d_v;
    std::vector<float> k = Normals(n_k);
    for (float& value : k) value /= std::sqrt(static_cast<float>(s.d_k));
    const std::vector<float> q = Normals(n_k), v = Normals(n_v), alpha = Normals(n_gates), beta = Normals(n_gates);
    const std::vector<float> a = Decays(s.n_v_heads), bias = Normals(s.n_v_heads), before = Normals(n_state);
    std::vector<float> out(v.size()), state = before, scratch(static_cast<size_t>(2 * n_gates));
    DeltaRuleArgs args = {.q = q.data(),
                          .k = k.data(),
                          .v = v.data(),
                          .alpha = alpha.data(),
                          .beta = beta.data(),
                          .a = a.data(),
                          .dt_bias = bias.data(),
                          .state = state.data(),
                          .out = out.data(),
                          .scratch = scratch.data(),
                          .n_rows = n_rows,
                          .n_k_heads = s.n_k_heads,
                          .n_v_heads = s.n_v_heads,
                          .d_k = s.d_k,
                          .d_v = s.d_v};
    for (const bool grouped : {false, true}) {
      args.grouped = grouped;
      state = before;
      ref_->DeltaRule(args);
      DeltaRuleArgs on = args;
      on.q = Put(q), on.k = Put(k), on.v = Put(v), on.alpha = Put(alpha), on.beta = Put(beta), on.a = Put(a);
      on.dt_bias = Put(bias), on.state = Put(before), on.out = Poisoned(n_v), on.scratch = nullptr;
      backend_->DeltaRule(on);
      EXPECT_LT(Distance(Get(on.out, n_v), out), 1e-5) << s.d_k;
      EXPECT_LT(Distance(Get(on.state, n_state), state), 1e-5) << s.d_k;
    }
  }
}

TEST_P(RecurrentTest, Scan) {
  struct Shape {
    int32_t n_groups, n_heads, d_state, d_head;
  };
  for (const Shape s : {Shape{1, 4, 16, 32}, {2, 4, 33, 64}, {2, 2, 5, 24}, {1, 1, 400, 32}}) {
    const int64_t n_rows = 7, n_x = n_rows * s.n_heads * s.d_head, n_b = n_rows * s.n_groups * s.d_state;
    const int64_t n_gates = n_rows * s.n_heads, n_state = int64_t{s.n_heads} * s.d_state * s.d_head;
    const std::vector<float> x = Normals(n_x), b = Normals(n_b), c = Normals(n_b), dt = Normals(n_gates);
    const std::vector<float> a = Decays(s.n_heads), bias = Normals(s.n_heads), d = Normals(s.n_heads);
    const std::vector<float> before = Normals(n_state);
    std::vector<float> out(x.size()), state = before, scratch(static_cast<size_t>(2 * n_gates));
    SsmScanArgs args = {.x = x.data(),
                        .b = b.data(),
                        .c = c.data(),
                        .dt = dt.data(),
                        .dt_bias = bias.data(),
                        .a = a.data(),
                        .d = d.data(),
                        .state = state.data(),
                        .out = out.data(),
                        .scratch = scratch.data(),
                        .n_rows = n_rows,
                        .n_groups = s.n_groups,
                        .n_heads = s.n_heads,
                        .d_state = s.d_state,
                        .d_head = s.d_head};
    ref_->SsmScan(args);
    args.x = Put(x), args.b = Put(b), args.c = Put(c), args.dt = Put(dt), args.a = Put(a), args.d = Put(d);
    args.dt_bias = Put(bias), args.state = Put(before), args.out = Poisoned(n_x), args.scratch = nullptr;
    backend_->SsmScan(args);
    EXPECT_LT(Distance(Get(args.out, n_x), out), 1e-5) << s.d_state;
    EXPECT_LT(Distance(Get(args.state, n_state), state), 1e-5) << s.d_state;
  }
}

WEIR_ON_DEVICES(RecurrentTest);

}  // namespace
}  // namespace weir::testing
