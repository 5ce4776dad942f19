// SPDX-License-Identifier: Apache-2.0
// Windows in a pot with gaps: which slots a row sees, under every position policy.
#include "kv/attend.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
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

// An attender with a pot of its own.
struct Place {
  Place(Backend& backend, AttentionLayout own, Positions positions) : layout(std::move(own)) {
    attender = std::move(Attender::Make(backend, layout, 16, 32, 32, true, ledger)).value();
    PotShape shape = layout.pot();
    shape.n_slots = 32;
    shape.k_type = shape.v_type = DType::kF32;
    shape.positions = positions;
    shape.granularity = Granularity::kPerHead;
    shape.floats = {SlotFloat::kScore};
    pot = std::move(Pot::Make(shape, backend, ledger)).value();
  }
  void Begin(int64_t first_seq, int64_t n, bool votes) {
    evidence.row_end = n;
    segment = {&*pot, 0, n, first_seq, votes ? &evidence : nullptr};
    ASSERT_TRUE(attender->Plan({&segment, 1}).ok());
    ASSERT_TRUE(pot->BeginAppend(Tokens(first_seq, n)).ok());
  }

  Ledger ledger;
  AttentionLayout layout;
  std::unique_ptr<Attender> attender;
  std::unique_ptr<Pot> pot;
  EvidenceCall evidence;
  BatchSegment segment;
};

class LayersTest : public ::testing::TestWithParam<Positions> {};

// Layers with their own heads, head sizes and rotations, and one that reads another's keys and values: each attends as
// it would in a model of its own.
TEST_P(LayersTest, AttendAsOnTheirOwn) {
  for (const bool simd : {false, true}) {
    auto backend = simd ? MakeCpuBackend(2) : MakeRefBackend();
    AttentionLayout narrow = Layout(), wide;
    narrow.n_layers = 1;
    narrow.n_heads = 2;
    narrow.rope.n_rot = 4;
    narrow.rope.freq_base = 100;
    narrow.window_layers = {true};
    wide.n_layers = 1;
    wide.n_heads = 4;
    wide.n_kv_heads = 2;
    wide.head_dim = 16;
    wide.scale = 1;
    wide.rope.n_rot = 16;
    AttentionLayout mixed = Layout();
    mixed.rope = wide.rope;
    mixed.window_rope = narrow.rope;
    mixed.window_layers = {false, true, false, true};
    mixed.SetLayers({{4, 2, 16}, {2, 1, 8}, {4, 2, 16, 0}, {2, 1, 8, 1}});
    ASSERT_EQ(mixed.pot().n_layers, 2);
    ASSERT_EQ(mixed.pot_layer(1), 1);
    ASSERT_EQ(mixed.pot_layer(2), 0);
    ASSERT_EQ(mixed.pot_layer(3), 1);
    Place both(*backend, mixed, GetParam()), one(*backend, narrow, GetParam()), other(*backend, wide, GetParam());
    EXPECT_EQ(Pot::KvBytes(both.pot->shape()), 2 * PageRound(32 * (2 * 16 + 8) * 4));
    EXPECT_EQ(both.ledger.used_bytes(), Pot::KvBytes(both.pot->shape()) + Pot::MetaBytes(both.pot->shape()) +
                                            Attender::MetaBytes(*backend, mixed, 32) +
                                            Attender::WorkspaceBytes(*backend, mixed, 16, 32, true));

    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    const auto numbers = [&](int64_t n) {
      std::vector<float> out(static_cast<size_t>(n));
      for (float& x : out) x = normal(rng);
      return out;
    };
    int64_t seq = 0;
    for (const int64_t n : {9, 1, 8, 5}) {
      const bool votes = n != 5;
      both.Begin(seq, n, votes);
      one.Begin(seq, n, votes);
      other.Begin(seq, n, votes);
      seq += n;
      const auto q = numbers(n * 64), k = numbers(n * 32), v = numbers(n * 32);
      std::vector<float> want(q.size()), got(q.size());
      other.attender->Attend(0, q.data(), k.data(), v.data(), want.data());
      both.attender->Attend(0, q.data(), k.data(), v.data(), got.data());
      EXPECT_EQ(got, want);
      const auto q1 = numbers(n * 16), k1 = numbers(n * 8), v1 = numbers(n * 8);
      std::vector<float> want1(q1.size()), got1(q1.size());
      one.attender->Attend(0, q1.data(), k1.data(), v1.data(), want1.data());
      both.attender->Attend(1, q1.data(), k1.data(), v1.data(), got1.data());
      EXPECT_EQ(got1, want1);
      std::fill(got.begin(), got.end(), 0.0f);
      both.attender->Attend(2, q.data(), nullptr, nullptr, got.data());
      EXPECT_EQ(got, want);
      ASSERT_EQ(both.attender->MayLeaveOutRows(), !votes);
      if (!votes) {
        // Only the last two rows.
        const auto expect_end = [&](int32_t layer, int64_t width, const std::vector<float>& queries,
                                    const std::vector<float>& all) {
          const int64_t from = (n - 2) * width;
          std::vector<float> end(static_cast<size_t>(2 * width));
          both.attender->Attend(layer, queries.data() + from, nullptr, nullptr, end.data(), n - 2);
          for (int64_t i = 0; i < 2 * width; ++i) EXPECT_NEAR(end[i], all[from + i], 1e-5);
        };
        expect_end(2, 64, q, want);
        expect_end(3, 16, q1, want1);
        continue;
      }
      // The layer that reads another's keys votes for them too; the last one has not voted yet.
      for (const int32_t head : {0, 1}) {
        const std::span<const float> mean = both.pot->scores(head), own = other.pot->scores(head);
        for (size_t slot = 0; slot < own.size(); ++slot) EXPECT_FLOAT_EQ(mean[slot], own[slot]);
      }
      both.attender->Attend(3, q1.data(), nullptr, nullptr, got1.data());
      EXPECT_EQ(got1, want1);
      const std::span<const float> alone = one.pot->scores(0), among = both.pot->scores(2);
      for (size_t slot = 0; slot < alone.size(); ++slot) EXPECT_FLOAT_EQ(among[slot], alone[slot]);
      if (n != 8) continue;
      for (Place* place : {&both, &one, &other}) {
        for (int32_t group = 0; group < place->pot->shape().n_groups(); ++group) {
          ASSERT_TRUE(place->pot->Compact(group, {0, 2, 5, 11, 12, 16}).ok());
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Positions, LayersTest,
                         ::testing::Values(Positions::kAbs, Positions::kCache, Positions::kReset),
                         [](const auto& info) { return std::string(PositionsName(info.param)); });

}  // namespace
}  // namespace weir
