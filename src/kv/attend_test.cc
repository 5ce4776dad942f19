// SPDX-License-Identifier: Apache-2.0
// Windows in a pot with gaps: which slots a row sees, under every position policy.
#include "kv/attend.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

constexpr int32_t kDim = 8, kWindow = 6;

AttentionLayout Layout() {
  AttentionLayout layout;
  layout.n_layers = 2;
  layout.n_heads = layout.n_kv_heads = 1;
  layout.head_dim = kDim;
  layout.scale = 1;
  layout.window = kWindow;
  layout.window_layers = {true, false};
  return layout;
}

std::vector<SlotMeta> Tokens(int64_t first_seq, int64_t n) {
  std::vector<SlotMeta> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[i].seq = first_seq + i;
  return out;
}

// With queries of zeros a row's output is the mean of the values it sees. Values are their token's seq.
class WindowTest : public ::testing::TestWithParam<Positions> {
 protected:
  // Appends rows and returns the average of what each of them sees in a layer.
  std::vector<float> Append(Pot& pot, Attender& attender, int64_t first_seq, int64_t n, int32_t layer) {
    const BatchSegment segment = {&pot, 0, n, first_seq};
    EXPECT_TRUE(attender.Plan({&segment, 1}).ok());
    EXPECT_TRUE(pot.BeginAppend(Tokens(first_seq, n)).ok());
    const std::vector<float> zeros(static_cast<size_t>(n * kDim), 0.0f);
    std::vector<float> values(zeros.size()), out(zeros.size());
    for (int64_t i = 0; i < n * kDim; ++i) values[i] = static_cast<float>(first_seq + i / kDim);
    // Both layers, so that neither has slots that were never written.
    std::vector<float> means;
    for (int32_t l = 0; l < 2; ++l) {
      attender.Attend(l, zeros.data(), zeros.data(), values.data(), out.data());
      for (int64_t i = 0; l == layer && i < n; ++i) means.push_back(out[i * kDim]);
    }
    return means;
  }
};

TEST_P(WindowTest, CountsPositions) {
  for (const bool simd : {false, true}) {
    for (const int32_t layer : {0, 1}) {
      Ledger ledger;
      auto backend = simd ? MakeCpuBackend(2) : MakeRefBackend();
      auto attender = std::move(Attender::Make(*backend, Layout(), 16, 32, 32, false, ledger)).value();
      PotShape shape;
      shape.n_layers = 2;
      shape.n_kv_heads = 1;
      shape.head_dim = kDim;
      shape.n_slots = 32;
      shape.k_type = shape.v_type = DType::kF32;
      shape.positions = GetParam();
      auto pot = std::move(Pot::Make(shape, *backend, ledger)).value();
      Append(*pot, *attender, 0, 10, layer);
      const KeepSet keep = {0, 3, 4, 7, 9};
      ASSERT_TRUE(pot->Compact(0, keep).ok());
      const std::vector<float> got = Append(*pot, *attender, 10, 3, layer);
      std::vector<int64_t> held(keep.begin(), keep.end());
      for (int64_t row = 0; row < 3; ++row) {
        held.push_back(10 + row);
        double sum = 0;
        int n = 0;
        for (size_t slot = 0; slot < held.size(); ++slot) {
          const int64_t distance =
              GetParam() == Positions::kAbs ? 10 + row - held[slot] : std::ssize(held) - 1 - static_cast<int64_t>(slot);
          if (layer == 0 && distance >= kWindow) continue;
          sum += static_cast<double>(held[slot]);
          ++n;
        }
        EXPECT_NEAR(got[row], sum / n, 1e-5) << "layer " << layer << " row " << row << (simd ? " cpu" : " ref");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Positions, WindowTest,
                         ::testing::Values(Positions::kAbs, Positions::kCache, Positions::kReset),
                         [](const auto& info) { return std::string(PositionsName(info.param)); });

}  // namespace
}  // namespace weir
