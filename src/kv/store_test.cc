// SPDX-License-Identifier: Apache-2.0
#include "kv/store.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "ops/kv_slots.h"

namespace weir {
namespace {

// One reference backend for all pots of this file.
Backend& Ref() {
  static const std::unique_ptr<Backend> backend = MakeRefBackend();
  return *backend;
}

PotShape SmallShape() {
  PotShape shape;
  shape.n_layers = 3;
  shape.n_kv_heads = 2;
  shape.head_dim = 32;
  shape.n_slots = 24;
  return shape;
}

// Two layers of one shape with another between them, and a last one of a third.
PotShape MixedShape() {
  PotShape shape = SmallShape();
  shape.SetLayers({{2, 32}, {1, 64}, {2, 32}, {3, 32}});
  return shape;
}

std::vector<SlotMeta> Tokens(int64_t first_seq, int32_t n) {
  std::vector<SlotMeta> out(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) {
    out[i].seq = first_seq + i;
    out[i].token_id = static_cast<int32_t>(1000 + first_seq + i);
  }
  return out;
}

// A value that identifies its token.
float Mark(int64_t seq, int32_t layer, int32_t head) { return static_cast<float>(seq + 100 * layer + 10 * head); }

void Fill(Pot& pot, int64_t first_seq, int32_t n) {
  const PotShape& s = pot.shape();
  for (int32_t layer = 0; layer < s.n_layers; ++layer) {
    const int32_t head_dim = s.head_dim_of(layer);
    for (int32_t head = 0; head < s.n_kv_heads_of(layer); ++head) {
      std::vector<float> x(static_cast<size_t>(n) * head_dim);
      for (int32_t i = 0; i < n; ++i) std::fill_n(x.begin() + i * head_dim, head_dim, Mark(first_seq + i, layer, head));
      StoreSlotsArgs args;
      args.x = x.data();
      args.x_stride = head_dim;
      args.n_rows = n;
      args.head_dim = head_dim;
      args.first_slot = pot.n_used(layer, head) - n;
      args.type = s.k_type;
      args.slots = pot.keys(layer, head);
      ref::StoreSlots(args);
      args.type = s.v_type;
      args.slots = pot.values(layer, head);
      ref::StoreSlots(args);
    }
  }
}

// Every stored vector and every statistic still belongs to the token its metadata names.
void ExpectEverythingInPlace(const Pot& pot) {
  const PotShape& shape = pot.shape();
  for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
    std::vector<float> value(static_cast<size_t>(shape.head_dim_of(layer)));
    for (int32_t head = 0; head < shape.n_kv_heads_of(layer); ++head) {
      const int32_t group = shape.group_of(layer, head);
      const auto meta = pot.meta(group);
      int64_t last = -1;
      for (size_t slot = 0; slot < meta.size(); ++slot) {
        ASSERT_GT(meta[slot].seq, last);
        last = meta[slot].seq;
        const float want = Mark(meta[slot].seq, layer, head);
        for (const uint8_t* base : {pot.keys(layer, head), pot.values(layer, head)}) {
          ref::LoadSlot(shape.k_type, base, static_cast<int64_t>(slot), shape.head_dim_of(layer), value.data());
          for (float x : value) ASSERT_NEAR(x, want, want / 200 + 0.01f);
        }
        if (shape.floats.has(SlotFloat::kScore)) {
          ASSERT_EQ(pot.scores(group)[slot], static_cast<float>(meta[slot].seq) + 0.5f);
        }
        if (shape.floats.has(SlotFloat::kNll)) {
          ASSERT_EQ(pot.nll(group)[slot], static_cast<float>(meta[slot].seq) + 0.25f);
        }
      }
    }
  }
}

void FillStatistics(Pot& pot, int64_t first_seq, int32_t n) {
  const PotShape& shape = pot.shape();
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    for (int32_t i = 0; shape.floats.has(SlotFloat::kScore) && i < n; ++i) {
      const auto scores = pot.scores(group);
      EXPECT_EQ(scores[scores.size() - n + i], 0.0f);
      scores[scores.size() - n + i] = static_cast<float>(first_seq + i) + 0.5f;
    }
  }
  std::vector<float> nll;
  for (int32_t i = 0; i < n; ++i) nll.push_back(static_cast<float>(first_seq + i) + 0.25f);
  if (shape.floats.has(SlotFloat::kNll)) pot.SetNewest(SlotFloat::kNll, nll);
}

// The last three: spread; whether layers differ; whether values are in the keys.
using StoreCase = std::tuple<Granularity, DType, int32_t, bool, bool>;

// Four bytes a slot for each number that is kept beside it.
TEST(Pot, MetaBytesGrowWithWhatIsKept) {
  PotShape shape = SmallShape();
  shape.granularity = Granularity::kGlobal;
  shape.n_slots = 1 << 16;
  shape.floats = {};
  const int64_t none = Pot::MetaBytes(shape);
  EXPECT_EQ(none, (1 << 16) * static_cast<int64_t>(sizeof(SlotMeta)));
  shape.floats = {SlotFloat::kNll};
  EXPECT_EQ(Pot::MetaBytes(shape) - none, 4 << 16);
  shape.floats = {SlotFloat::kNll, SlotFloat::kScore};
  EXPECT_EQ(Pot::MetaBytes(shape) - none, 8 << 16);
}

class StoreTest : public ::testing::TestWithParam<StoreCase> {};

TEST_P(StoreTest, SurvivorsKeepTheirValuesThroughRandomSelections) {
  PotShape shape = std::get<3>(GetParam()) ? MixedShape() : SmallShape();
  shape.granularity = std::get<0>(GetParam());
  shape.k_type = shape.v_type = std::get<1>(GetParam());
  shape.spread = std::get<2>(GetParam());
  shape.values_in_keys = std::get<4>(GetParam());
  shape.floats = {SlotFloat::kNll};
  if (shape.granularity != Granularity::kGlobal) shape.floats.Add({SlotFloat::kScore});
  Ledger ledger;
  auto made = Pot::Make(shape, Ref(), ledger);
  ASSERT_TRUE(made.ok()) << made.status().message();
  Pot& pot = **made;
  EXPECT_EQ(ledger.used_bytes(), Pot::KvBytes(shape) + Pot::MetaBytes(shape));

  std::mt19937 rng(7);
  int64_t seq = 0;
  int32_t fullest = 0;
  for (int round = 0; round < 200; ++round) {
    const int32_t n = 1 + static_cast<int32_t>(rng() % 5);
    if (pot.n_free() < n) {
      std::map<int32_t, int64_t> limits;  // of the groups of a pool together
      for (int32_t group = 0; group < shape.n_groups(); ++group) {
        limits[shape.pool_of(std::max(shape.layer_of(group), 0))] += shape.n_slots - n;
      }
      for (int32_t group = 0; group < shape.n_groups(); ++group) {
        int64_t& left = limits[shape.pool_of(std::max(shape.layer_of(group), 0))];
        KeepSet keep;
        const int32_t used = static_cast<int32_t>(pot.meta(group).size());
        // Heads of very unequal size that share their storage.
        const uint32_t share = shape.spread > 1 && rng() % 3 == 0 ? 5 : 2;
        for (int32_t s = 0; s < used; ++s) {
          if (rng() % 6 < share) keep.push_back(s);
        }
        const int64_t most = shape.spread > 1 ? std::min<int64_t>(left, shape.max_head_slots() - n) : shape.n_slots - n;
        if (std::ssize(keep) > most) keep.resize(static_cast<size_t>(most));
        left -= std::ssize(keep);
        ASSERT_TRUE(pot.Compact(group, keep).ok());
        ASSERT_EQ(pot.meta(group).size(), keep.size());
        fullest = std::max(fullest, static_cast<int32_t>(keep.size()));
      }
      pot.Rebalance();
      ASSERT_GE(pot.n_free(), n);
    }
    ASSERT_TRUE(pot.BeginAppend(Tokens(seq, n)).ok());
    Fill(pot, seq, n);
    FillStatistics(pot, seq, n);
    seq += n;
    ASSERT_LE(pot.n_used(), shape.max_head_slots());
    ASSERT_NO_FATAL_FAILURE(ExpectEverythingInPlace(pot));
  }
  EXPECT_TRUE(shape.spread == 1 || fullest > shape.n_slots) << "no head ever used another's room";

  std::vector<uint8_t> saved;
  VectorSink sink(&saved);
  ASSERT_TRUE(pot.Save(sink).ok());
  EXPECT_EQ(std::ssize(saved), pot.state_bytes());
  auto other = std::move(Pot::Make(shape, Ref(), ledger)).value();
  const auto any = [](int32_t, const SlotMeta&) { return true; };
  SpanSource source(saved);
  ASSERT_TRUE(other->CheckState(source, any).ok());
  EXPECT_EQ(source.n_left(), 0);
  EXPECT_EQ(other->n_used(), 0) << "a look changes nothing";
  source.Rewind();
  ASSERT_TRUE(other->Restore(source, any).ok());
  EXPECT_EQ(source.n_left(), 0);
  ASSERT_NO_FATAL_FAILURE(ExpectEverythingInPlace(*other));
  EXPECT_EQ(other->n_free(), pot.n_free());
  std::vector<uint8_t> again;
  VectorSink sink_again(&again);
  ASSERT_TRUE(other->Save(sink_again).ok());
  EXPECT_EQ(again, saved);
  for (size_t cut = 0; cut < saved.size(); cut += 1 + saved.size() / 60) {
    SpanSource part({saved.data(), cut});
    EXPECT_EQ(other->CheckState(part, any).code(), StatusCode::kInvalidArgument) << cut << " bytes";
    part.Rewind();
    EXPECT_EQ(other->Restore(part, any).code(), StatusCode::kInvalidArgument) << cut << " bytes";
    EXPECT_EQ(other->n_used(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllShapes, StoreTest,
    ::testing::Combine(::testing::Values(Granularity::kGlobal, Granularity::kPerLayer, Granularity::kPerHead),
                       ::testing::Values(DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ5_0, DType::kQ4_0),
                       ::testing::Values(1), ::testing::Bool(), ::testing::Bool()));
INSTANTIATE_TEST_SUITE_P(SharedStorage, StoreTest,
                         ::testing::Combine(::testing::Values(Granularity::kPerHead),
                                            ::testing::Values(DType::kF16, DType::kQ8_0), ::testing::Values(2, 4),
                                            ::testing::Bool(), ::testing::Bool()));

TEST(Store, ValuesThatAreInTheKeysTakeNoBytes) {
  PotShape shape = MixedShape();
  const int64_t apart = Pot::KvBytes(shape);
  shape.values_in_keys = true;
  EXPECT_EQ(Pot::KvBytes(shape), apart / 2);
  shape.v_type = DType::kF32;
  EXPECT_EQ(Pot::Check(shape).code(), StatusCode::kInvalidArgument);
}

TEST(Store, LayersOfTheirOwnShape) {
  PotShape shape = MixedShape();
  EXPECT_EQ(shape.n_layers, 4);
  EXPECT_EQ(shape.n_heads_total(), 8);
  EXPECT_EQ(shape.n_kv_heads, 3);
  EXPECT_EQ(shape.head_dim, 64);
  // Numbers of a slot of all layers: 2 x 32 + 1 x 64 + 2 x 32 + 3 x 32 of two bytes.
  EXPECT_EQ(Pot::KvBytes(shape), 2 * PageRound(24 * (64 + 64 + 64 + 96) * 2));
  shape.granularity = Granularity::kPerHead;
  const int32_t layers[] = {0, 0, 1, 2, 2, 3, 3, 3}, heads[] = {0, 1, 0, 0, 1, 0, 1, 2};
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    EXPECT_EQ(shape.layer_of(group), layers[group]);
    EXPECT_EQ(shape.head_of(group), heads[group]);
    EXPECT_EQ(shape.group_of(layers[group], heads[group]), group);
  }
  EXPECT_EQ(shape.pool_of(2), 0);
  EXPECT_EQ(shape.pool_of(3), 3);
  shape.SetLayers({{2, 32}, {2, 32}});
  EXPECT_TRUE(shape.layers.empty()) << "layers that are alike";
  EXPECT_EQ(shape.n_layers, 2);

  // A pot is only restored into one of the same layers.
  Ledger ledger;
  auto pot = std::move(Pot::Make(MixedShape(), Ref(), ledger)).value();
  ASSERT_TRUE(pot->BeginAppend(Tokens(0, 3)).ok());
  std::vector<uint8_t> saved;
  VectorSink sink(&saved);
  ASSERT_TRUE(pot->Save(sink).ok());
  shape.SetLayers({{2, 32}, {2, 32}, {1, 64}, {3, 32}});
  shape.granularity = Granularity::kGlobal;
  auto other = std::move(Pot::Make(shape, Ref(), ledger)).value();
  SpanSource source(saved);
  EXPECT_FALSE(other->CheckState(source, [](int32_t, const SlotMeta&) { return true; }).ok());
  EXPECT_FALSE(other->CopyFrom(*pot).ok());
}

TEST(Store, RefusesKeepSetsThatCannotBeHonoured) {
  Ledger ledger;
  auto pot = std::move(Pot::Make(SmallShape(), Ref(), ledger)).value();
  std::vector<SlotMeta> tokens = Tokens(0, 6);
  tokens[2].pinned = true;
  ASSERT_TRUE(pot->BeginAppend(tokens).ok());
  for (const KeepSet& bad :
       {KeepSet{0, 1, 3}, KeepSet{2, 1}, KeepSet{2, 2}, KeepSet{2, 6}, KeepSet{-1, 2}, KeepSet{}}) {
    EXPECT_EQ(pot->Compact(0, bad).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(pot->n_used(), 6);
  }
  EXPECT_TRUE(pot->Compact(0, {2, 5}).ok());
  EXPECT_EQ(pot->meta(0)[0].seq, 2);
  EXPECT_EQ(pot->meta(0)[1].seq, 5);
}

TEST(Store, AppendBeyondThePotChangesNothing) {
  Ledger ledger;
  auto pot = std::move(Pot::Make(SmallShape(), Ref(), ledger)).value();
  ASSERT_TRUE(pot->BeginAppend(Tokens(0, 20)).ok());
  EXPECT_EQ(pot->BeginAppend(Tokens(20, 5)).code(), StatusCode::kOverBudget);
  EXPECT_EQ(pot->n_used(), 20);
  pot->DropLast(3);
  EXPECT_EQ(pot->n_used(), 17);
  EXPECT_EQ(pot->meta(0).back().seq, 16);
}

TEST(Store, EveryRefusedAllocationIsAnAnswer) {
  for (int n = 1; n <= 3; ++n) {
    Ledger ledger;
    ledger.FailNth(n);
    auto pot = Pot::Make(SmallShape(), Ref(), ledger);
    EXPECT_EQ(pot.status().code(), StatusCode::kOverBudget) << "allocation " << n;
    EXPECT_EQ(ledger.used_bytes(), 0);
  }
}

TEST(Store, RefusesImpossibleShapes) {
  Ledger ledger;
  PotShape shape = SmallShape();
  shape.n_slots = 0;
  EXPECT_EQ(Pot::Make(shape, Ref(), ledger).status().code(), StatusCode::kInvalidArgument);
  shape = SmallShape();
  shape.head_dim = 40;
  shape.k_type = DType::kQ8_0;
  EXPECT_EQ(Pot::Make(shape, Ref(), ledger).status().code(), StatusCode::kInvalidArgument);
  shape = SmallShape();
  shape.spread = 2;  // heads share storage, but not their keep-sets
  EXPECT_EQ(Pot::Make(shape, Ref(), ledger).status().code(), StatusCode::kInvalidArgument);
  shape = SmallShape();
  shape.floats = {SlotFloat::kScore};  // no attention is declared
  EXPECT_EQ(Pot::Make(shape, Ref(), ledger).status().code(), StatusCode::kInvalidArgument);
  shape = MixedShape();
  shape.SetLayers({{2, 32}, {1, 40}});  // one layer's heads are no whole blocks
  shape.k_type = DType::kQ8_0;
  EXPECT_EQ(Pot::Make(shape, Ref(), ledger).status().code(), StatusCode::kInvalidArgument);
  shape = SmallShape();
  shape.k_type = DType::kQ4_K;
  EXPECT_EQ(Pot::Make(shape, Ref(), ledger).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
