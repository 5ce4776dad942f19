// SPDX-License-Identifier: Apache-2.0
#include "engine/session/slot_merger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/rng.h"
#include "quant/format.h"

namespace weir {
namespace {

constexpr int32_t kSlots = 12, kDim = 32;
KeepSet kept_slots;
constexpr int32_t kPinned = 4;

using Vectors = std::vector<std::vector<double>>;

class SlotMergerTest : public ::testing::Test {
 protected:
  void Fill(DType type) {
    PotShape shape;
    shape.n_layers = 1;
    shape.n_kv_heads = 1;
    shape.head_dim = kDim;
    shape.n_slots = kSlots;
    shape.k_type = shape.v_type = type;
    auto pot = Pot::Make(shape, *backend_, ledger_);
    ASSERT_TRUE(pot.ok()) << pot.status().message();
    pot_ = std::move(*pot);
    std::vector<SlotMeta> rows(kSlots);
    for (int32_t i = 0; i < kSlots; ++i) rows[i].seq = i;
    rows[kPinned].pinned = true;
    ASSERT_TRUE(pot_->BeginAppend(rows).ok());
    Rng rng(7);
    std::vector<float> x(kDim);
    for (int32_t s = 0; s < kSlots; ++s) {
      for (const bool key : {true, false}) {
        for (float& v : x) v = static_cast<float>(rng.Uniform() * 2 - 1);
        EncodeRow(type, x.data(), kDim,
                  key ? pot_->keys(0, 0) + s * pot_->k_slot_bytes(0) : pot_->values(0, 0) + s * pot_->v_slot_bytes(0));
      }
    }
  }
  Vectors Read(bool keys) const {
    Vectors out;
    std::vector<float> x(kDim);
    for (int32_t s = 0; s < kSlots; ++s) {
      DecodeRow(pot_->shape().k_type,
                keys ? pot_->keys(0, 0) + s * pot_->k_slot_bytes(0) : pot_->values(0, 0) + s * pot_->v_slot_bytes(0),
                kDim, x.data());
      out.emplace_back(x.begin(), x.end());
    }
    return out;
  }
  void Run(Merge how) {
    SlotMerger merger;
    BufferSpace space(backend_.get(), &ledger_);
    merger.LayOut(pot_->shape(), how, &space);
    ASSERT_TRUE(space.status().ok());
    merger.Run(*pot_, 0, 0, kept_slots);
  }

  const std::unique_ptr<Backend> backend_ = MakeRefBackend();
  Ledger ledger_;
  std::unique_ptr<Pot> pot_;
};

double Cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) dot += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  return dot / std::sqrt(aa * bb);
}

bool Kept(int32_t slot) { return std::ranges::binary_search(kept_slots, slot); }

// The slot that receives a dropped one, and how near it is.
std::pair<int32_t, double> Nearest(const Vectors& keys, int32_t dropped) {
  std::pair<int32_t, double> best = {-1, -2};
  for (const int32_t kept : kept_slots) {
    const double near = Cosine(keys[dropped], keys[kept]);
    if (kept != kPinned && near > best.second) best = {kept, near};
  }
  return best;
}

// The definitions, term by term.
Vectors Merged(const Vectors& x, const Vectors& keys, Merge how) {
  Vectors out = x;
  for (const int32_t kept : kept_slots) {
    std::vector<std::vector<double>> terms = {x[kept]};
    for (int32_t s = 0; s < kSlots; ++s) {
      if (Kept(s)) continue;
      const auto [to, near] = Nearest(keys, s);
      if (to != kept) continue;
      std::vector<double> term = x[s];
      for (size_t i = 0; i < term.size(); ++i) {
        if (how == Merge::kPivot) term[i] = (term[i] + x[kept][i]) / 2;
        if (how == Merge::kWeighted) term[i] *= near;
      }
      terms.push_back(term);
    }
    for (size_t i = 0; i < kDim; ++i) {
      double sum = 0;
      for (const auto& term : terms) sum += term[i];
      out[kept][i] = sum / static_cast<double>(terms.size());
    }
  }
  return out;
}

TEST_F(SlotMergerTest, FollowsTheDefinitions) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_1}) {
    for (const Merge how : {Merge::kAverage, Merge::kPivot, Merge::kWeighted}) {
      kept_slots = how == Merge::kPivot ? KeepSet{0, 3, 4, 7} : KeepSet{0, 3, 4, 7, 10, 11};
      Fill(type);
      const Vectors keys = Read(true), values = Read(false);
      const Vectors want_keys = Merged(keys, keys, how), want_values = Merged(values, keys, how);
      Run(how);
      const Vectors got_keys = Read(true), got_values = Read(false);
      const double error = type == DType::kF32 ? 1e-6 : type == DType::kF16 ? 1e-3 : type == DType::kQ8_0 ? 0.01 : 0.1;
      int n_changed = 0;
      for (int32_t s = 0; s < kSlots; ++s) {
        n_changed += got_keys[s] != keys[s];
        for (int32_t i = 0; i < kDim; ++i) {
          EXPECT_NEAR(got_keys[s][i], want_keys[s][i], error) << "key " << s;
          EXPECT_NEAR(got_values[s][i], want_values[s][i], error) << "value " << s;
        }
      }
      EXPECT_GT(n_changed, 1);
      EXPECT_EQ(got_keys[kPinned], keys[kPinned]) << "pinned";
      EXPECT_EQ(got_values[kPinned], values[kPinned]) << "pinned";
    }
  }
}

}  // namespace
}  // namespace weir
