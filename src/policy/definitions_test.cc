// SPDX-License-Identifier: Apache-2.0
// Facts that follow from the methods' definitions, independent of the implementation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "policy/policy.h"
#include "policy/rank.h"

namespace weir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::unique_ptr<Policy> Make(const std::string& spec) {
  Result<PolicySpec> parsed = ParsePolicySpec(spec);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return std::move(parsed->Make()).value();
}

// A group of n slots with their metadata and statistics.
struct Pot {
  std::vector<SlotMeta> slots;
  std::vector<float> scores, nll;
  SlotView view;

  explicit Pot(int32_t n) : slots(static_cast<size_t>(n)), scores(static_cast<size_t>(n)), nll(static_cast<size_t>(n)) {
    for (int32_t i = 0; i < n; ++i) slots[i].seq = i;
    view.layer = view.head = 0;
    view.n_layers = view.n_kv_heads = 1;
    view.n_rows = 1;
    view.n_seen = n;
    view.slots = slots;
    view.scores = scores;
    view.nll = nll;
  }
};

KeepSet Select(Policy& policy, const Pot& pot, int32_t n_keep) {
  KeepSet keep;
  policy.Select(pot.view, n_keep, &keep);
  return keep;
}
KeepSet Select(const std::string& spec, const Pot& pot, int32_t n_keep) { return Select(*Make(spec), pot, n_keep); }

KeepSet Newest(int32_t n, int32_t count) {
  KeepSet out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), n - count);
  return out;
}

// Few distinct values, so that ties are common.
void Fill(Rng& rng, int values, std::vector<float>* out) {
  for (float& x : *out) x = static_cast<float>(rng.Below(static_cast<uint64_t>(values))) / 64;
}

TEST(Rank, HigherScoreThenUnpooledThenNewer) {
  const std::vector<float> a = {2, 2, 2, 3}, b = {0, 5, 1, 0};
  EXPECT_TRUE(RanksBefore({a, {}}, 3, 0));
  EXPECT_TRUE(RanksBefore({a, {}}, 2, 1));
  EXPECT_TRUE(RanksBefore({a, b}, 1, 2));
  const std::vector<float> broken = {std::nanf(""), 0, std::nanf("")};
  EXPECT_TRUE(RanksBefore({broken, {}}, 1, 2));
  EXPECT_TRUE(RanksBefore({broken, {}}, 2, 0));
}

TEST(Rank, PoolsPadWithZeros) {
  std::vector<float> out(5);
  Pool(std::vector<float>{0, 4, 0, 0, 2}, 3, Pooling::kMax, out.data());
  EXPECT_EQ(out, (std::vector<float>{4, 4, 4, 2, 2}));
  out.resize(4);
  Pool(std::vector<float>{3, 0, 0, 6}, 3, Pooling::kAvg, out.data());
  EXPECT_EQ(out, (std::vector<float>{1, 1, 2, 2}));
  out.resize(2);
  Pool(std::vector<float>{-3, -1}, 5, Pooling::kMax, out.data());
  EXPECT_EQ(out, (std::vector<float>{0, 0}));
}

TEST(InfMllm, ConstantAttentionKeepsTheNewest) {
  Pot pot(40);
  std::fill(pot.scores.begin(), pot.scores.end(), 0.125f);
  for (const char* b : {"1", "0.01", "0.0001"}) {
    EXPECT_EQ(Select(std::string("inf_mllm:recent=8,b=") + b, pot, 20), Newest(40, 20)) << b;
  }
}

TEST(InfMllm, SpikesStayWithoutPenalty) {
  Pot pot(40);
  std::fill(pot.scores.begin(), pot.scores.end(), 0.125f);
  KeepSet expected = {0, 3, 4, 11, 15, 20, 21, 22, 25, 26, 28, 30};
  for (int32_t slot : expected) pot.scores[slot] = 0.5f;
  for (int32_t slot = 32; slot < 40; ++slot) expected.push_back(slot);
  EXPECT_EQ(Select("inf_mllm:recent=8,b=0", pot, 20), expected);
}

TEST(InfMllm, TheOldestSlotMustBeatItsPenalty) {
  // It is kept iff S > background + b (evicted / candidates): every number here is exact.
  const float threshold = 0.125f + 0.5f * 20 / 32;
  for (const float above : {-0x1p-10f, 0.0f, 0x1p-10f}) {
    Pot pot(40);
    std::fill(pot.scores.begin(), pot.scores.end(), 0.125f);
    pot.scores[0] = threshold + above;
    EXPECT_EQ(Select("inf_mllm:recent=8,b=0.5", pot, 20).front() == 0, above > 0) << above;
    // The same where the model's sinks take half of every row.
    for (float& score : pot.scores) score /= 2;
    pot.view.row_attention = 0.5f;
    EXPECT_EQ(Select("inf_mllm:recent=8,b=0.5", pot, 20).front() == 0, above > 0) << above;
  }
}

// The prompt's length is the window: as many slots as rows voted are recent.
TEST(InfMllm, ThePromptsLengthIsTheWindow) {
  Pot pot(40);
  for (int32_t j = 0; j < 20; ++j) pot.scores[j] = 1;
  pot.view.n_rows = 6;
  const KeepSet keep = Select("inf_mllm:votes=prompt,recent=1,b=0", pot, 20);
  KeepSet expected(14);
  std::iota(expected.begin(), expected.end(), 6);
  for (int32_t slot = 34; slot < 40; ++slot) expected.push_back(slot);
  EXPECT_EQ(keep, expected);
  // A prompt longer than the budget gets half of it.
  pot.view.n_rows = 30;
  const KeepSet half = Select("inf_mllm:votes=prompt,b=0", pot, 20);
  EXPECT_EQ(std::count_if(half.begin(), half.end(), [](int32_t s) { return s >= 30; }), 10);
}

// At most the share `old` of the attended slots is older than recency alone would keep, whatever the scores' scale, and
// a smaller penalty would keep more.
TEST(InfMllm, FindsTheBiasThatKeepsAShareOfOldSlots) {
  Rng rng(3);
  for (int round = 0; round < 60; ++round) {
    Pot pot(90);
    Fill(rng, 500, &pot.scores);
    const float scale = std::pow(10.0f, static_cast<float>(round % 6) - 4);
    for (float& score : pot.scores) score = score * score * scale;
    pot.scores[2] = 1e4f * scale;  // a sink
    // 80 candidates, of which 40 stay: recency alone would keep 40 to 79.
    const auto n_old = [&](const char* old) {
      const KeepSet keep = Select(std::string("inf_mllm:recent=10,bias=share,old=") + old, pot, 50);
      return std::count_if(keep.begin(), keep.end(), [](int32_t s) { return s < 40; });
    };
    EXPECT_EQ(n_old("0"), 0);
    EXPECT_LE(n_old("0.1"), 4);
    EXPECT_GE(n_old("0.1"), 2);
    EXPECT_LE(n_old("0.25"), 10);
    EXPECT_GE(n_old("0.25"), 8);
    EXPECT_EQ(Select("inf_mllm:recent=10,bias=share,old=1", pot, 50), Select("inf_mllm:recent=10,b=0", pot, 50));
    // Exactly: the smallest of the penalties at which an old candidate and a newer one change places.
    std::set<double> ties;
    for (int32_t i = 0; i < 40; ++i) {
      for (int32_t j = 40; j < 80; ++j) {
        if (pot.scores[i] > pot.scores[j]) ties.insert((double{pot.scores[i]} - pot.scores[j]) * 80 / (j - i));
      }
    }
    const auto few = [&](double b) {
      std::vector<std::pair<double, int32_t>> order;
      for (int32_t j = 0; j < 80; ++j) order.emplace_back(pot.scores[j] - b * (79 - j) / 80, j);
      std::sort(order.rbegin(), order.rend());
      return std::count_if(order.begin(), order.begin() + 40, [](const auto& slot) { return slot.second < 40; }) <= 4;
    };
    const auto smallest = std::find_if(ties.begin(), ties.end(), [&](double b) { return few(b * (1 + 1e-5)); });
    ASSERT_NE(smallest, ties.end());
    Pot exact = pot;
    exact.view.scores = exact.scores;
    exact.view.slots = exact.slots;
    const std::string b = std::to_string(*smallest * 1.00002 / scale);
    for (float& score : exact.scores) score /= scale;  // so that the number has its digits
    EXPECT_EQ(std::ssize(Select("inf_mllm:recent=10,b=" + b, exact, 50)), 50);
    KeepSet common;
    std::ranges::set_intersection(Select("inf_mllm:recent=10,b=" + b, exact, 50),
                                  Select("inf_mllm:recent=10,bias=share,old=0.1", pot, 50), std::back_inserter(common));
    EXPECT_GE(std::ssize(common), 49) << "rounding may move the last one";
  }
}

TEST(InfMllm, MeansOverRows) {
  // The penalty is in units of attention: sums of twice the rows are the same evidence.
  Rng rng(1);
  Pot pot(50);
  auto policy = Make("inf_mllm:recent=4,b=0.25");
  for (int round = 0; round < 50; ++round) {
    Fill(rng, 40, &pot.scores);
    pot.view.n_rows = 1;
    const KeepSet keep = Select(*policy, pot, 20);
    for (float& x : pot.scores) x *= 4;
    pot.view.n_rows = 4;
    EXPECT_EQ(Select(*policy, pot, 20), keep);
  }
}

TEST(InfMllm, OneRowWithoutPenaltyIsTovaWithTheNewestSlotProtected) {
  Rng rng(2);
  Pot pot(48);
  for (int round = 0; round < 50; ++round) {
    Fill(rng, 12, &pot.scores);
    const int32_t n_keep = 1 + static_cast<int32_t>(rng.Below(47));
    Pot protect = pot;
    protect.slots.back().pinned = true;
    protect.view.slots = protect.slots;
    protect.view.scores = protect.scores;
    EXPECT_EQ(Select("inf_mllm:recent=1,b=0", pot, n_keep), Select("tova", protect, n_keep));
  }
}

// As few slots as hold the share of the catalyst's attention, the same number in all heads, within the bounds.
TEST(InfiniPotRatio, FollowsTheAttention) {
  const auto kept = [](const std::string& cover, int32_t n_attended) {
    Pot pot(80);
    std::vector<float> scores(80, 0.0f);
    scores[0] = 100;  // a sink
    std::fill_n(scores.begin() + 10, n_attended, 1.0f);
    pot.view.scores = scores;
    const std::vector<SlotView> views(2, pot.view);
    std::vector<KeepSet> keeps(2);
    Make("infinipot:ratio=0.5,cover=" + cover)->SelectAll(views, 40, keeps);
    EXPECT_EQ(keeps[0].size(), keeps[1].size());
    return std::ssize(keeps[0]);
  };
  EXPECT_EQ(kept("0", 20), 40);
  EXPECT_EQ(kept("1", 20), 24);  // and the first four
  EXPECT_EQ(kept("0.5", 20), 14);
  EXPECT_EQ(kept("0.5", 2), 10);   // a fourth of the ratio
  EXPECT_EQ(kept("0.9", 60), 40);  // never more than the ratio
}

TEST(InfiniPotCatalyst, NamesAndNone) {
  const auto needs = [](const std::string& catalyst) { return Make("infinipot:catalyst=" + catalyst)->Needs(); };
  EXPECT_EQ(needs("cap_g").probe, Make("infinipot")->Needs().probe);
  EXPECT_NE(needs("cap_g1").probe, needs("cap_g2").probe);
  EXPECT_NE(needs("cap_q").probe.find("{question}"), std::string::npos);
  EXPECT_EQ(needs("cap_x").probe, "cap_x");
  EXPECT_EQ(needs("none").evidence.rows, EvidenceRows::kLast);
  EXPECT_EQ(needs("none").evidence.n_last, 1);
  EXPECT_EQ(needs("none").granularity, Granularity::kPerHead);
  EXPECT_TRUE(needs("none").probe.empty());
}

TEST(InfiniPot, AlphaZeroIsTheCatalystAndAlphaOneIsSirLlm) {
  Rng rng(3);
  Pot pot(48);
  auto cap = Make("infinipot:alpha=0"), novel = Make("infinipot:alpha=1"), half = Make("infinipot:alpha=0.5");
  auto sirllm = Make("sirllm:sinks=0"), tova = Make("tova");
  for (int round = 0; round < 100; ++round) {
    Fill(rng, 30, &pot.scores);
    Fill(rng, 30, &pot.nll);
    pot.nll[0] = kInf;
    const int32_t n_keep = 1 + static_cast<int32_t>(rng.Below(47));
    Pot no_nll = pot, no_scores = pot;
    no_nll.view = no_scores.view = pot.view;
    no_nll.view.nll = {};
    no_scores.view.scores = {};
    no_scores.view.n_unscored = 20;                                       // no statistic was collected
    EXPECT_EQ(Select(*cap, no_nll, n_keep), Select(*tova, pot, n_keep));  // both rank by one row of scores
    EXPECT_EQ(Select(*novel, no_scores, n_keep), Select(*sirllm, pot, n_keep));
    const KeepSet both = Select(*half, pot, n_keep), surprising = Select(*sirllm, pot, (n_keep + 1) / 2);
    EXPECT_EQ(std::ssize(both), n_keep);
    EXPECT_TRUE(std::includes(both.begin(), both.end(), surprising.begin(), surprising.end()));
  }
  EXPECT_EQ(Make("infinipot:alpha=0")->Needs().evidence.nll, Normaliser::kNone);
  EXPECT_EQ(novel->Needs().evidence.rows, EvidenceRows::kNone);
  EXPECT_EQ(novel->Needs().granularity, Granularity::kGlobal);
}

// What is seen has no likelihood: it ranks as the median of the text, between the two in the middle.
TEST(InfiniPot, APictureIsAsSurprisingAsHalfOfTheText) {
  Pot pot(6);
  pot.nll = {9, 1, 2, 9, 3, 4};
  pot.slots[0].modality = pot.slots[3].modality = Modality::kImage;
  pot.view.nll = pot.nll;
  pot.view.scores = {};
  EXPECT_EQ(Select("infinipot:alpha=1", pot, 2), (KeepSet{4, 5}));
  EXPECT_EQ(Select("infinipot:alpha=1", pot, 4), (KeepSet{0, 3, 4, 5}));
  EXPECT_EQ(Select("infinipot:alpha=1", pot, 5), (KeepSet{0, 2, 3, 4, 5}));
}

// Pinned slots stay however few hold the attention, and one more.
TEST(InfiniPotRatio, PinsAreWithinTheShare) {
  Pot pot(80);
  std::vector<float> scores(80, 0.0f);
  std::fill_n(scores.begin() + 10, 2, 1.0f);
  pot.view.scores = scores;
  for (int32_t slot = 40; slot < 60; ++slot) pot.slots[slot].pinned = true;
  const std::vector<SlotView> views(2, pot.view);
  std::vector<KeepSet> keeps(2);
  Make("infinipot:ratio=0.5,cover=0.5")->SelectAll(views, 40, keeps);
  EXPECT_EQ(keeps[0].size(), 21u);
  Make("infinipot:ratio=0.5,cover=0.5,sinks=30")->SelectAll(views, 40, keeps);
  EXPECT_EQ(keeps[0].size(), 31u);
}

// Of slots with the same attention the older ones go.
TEST(InfMllm, TheBiasIsAgainstAge) {
  Pot pot(32);
  std::fill(pot.scores.begin(), pot.scores.end(), 0.5f);
  for (const char* b : {"0.0001", "0.1"}) {
    EXPECT_EQ(Select(std::string("inf_mllm:recent=4,b=") + b, pot, 12), Newest(32, 12)) << b;
  }
}

TEST(InfMllm, SoManyRowsVote) {
  const auto n_last = [](const std::string& votes) {
    return Make("inf_mllm:recent=16,votes=" + votes)->Needs().evidence.n_last;
  };
  EXPECT_EQ(n_last("last"), 16);
  EXPECT_EQ(n_last("own"), -16);
  EXPECT_LT(n_last("prompt"), -1000000) << "all of it";
}

TEST(Step, AStepLeavesOneSlotAtLeast) {
  for (const char* spec : {"inf_mllm:step=20", "tova:step=20", "lookm:step=20", "fastv:step=20"}) {
    EXPECT_EQ(Make(spec)->TargetSlots(20, 5), 1) << spec;
  }
}

TEST(InfiniPotV, WithoutNoveltyNoFramesAreCompared) {
  EXPECT_EQ(Make("infinipot_v:alpha=0")->Needs().evidence.recent_frames, 0);
  EXPECT_GT(Make("infinipot_v:alpha=0.5")->Needs().evidence.recent_frames, 0);
}

TEST(LookM, MergesAsItsOptionSays) {
  const auto merge = [](const std::string& word) { return Make("lookm:merge=" + word)->Needs().merge; };
  EXPECT_EQ(merge("none"), Merge::kNone);
  EXPECT_EQ(merge("average"), Merge::kAverage);
  EXPECT_EQ(merge("pivot"), Merge::kPivot);
  EXPECT_EQ(merge("weighted"), Merge::kWeighted);
}

TEST(InfiniPot, NeedsACatalystOrNone) {
  EXPECT_FALSE(ParsePolicySpec("infinipot:catalyst=\"\",template=off")->Make().ok());
  EXPECT_TRUE(ParsePolicySpec("infinipot:catalyst=\"\",template=off,alpha=1")->Make().ok());
  EXPECT_FALSE(ParsePolicySpec("infinipot:kernel=4")->Make().ok());
  EXPECT_EQ(Make("infinipot:catalyst=\"Where, then?\"")->Needs().probe, "Where, then?");
}

TEST(SnapKv, ASpikeKeepsItsNeighboursAndTheWindowStays) {
  Rng rng(4);
  for (int32_t kernel : {1, 3, 5, 7}) {
    for (int32_t window : {1, 4, 8}) {
      for (int32_t spike = 10; spike < 30; ++spike) {
        Pot pot(48);
        Fill(rng, 16, &pot.scores);
        pot.scores[spike] = 0.5f;
        KeepSet expected;
        for (int32_t slot = spike - kernel / 2; slot <= spike + kernel / 2; ++slot) expected.push_back(slot);
        for (int32_t slot = 48 - window; slot < 48; ++slot) expected.push_back(slot);
        const std::string options =
            "pooling=max,window=" + std::to_string(window) + ",kernel=" + std::to_string(kernel);
        EXPECT_EQ(Select("snapkv:" + options, pot, window + kernel), expected);
      }
    }
  }
}

TEST(SnapKv, AWindowThatFillsTheBudgetKeepsHalf) {
  Pot pot(40);
  pot.scores[3] = 1;
  KeepSet expected = {3};
  for (int32_t slot = 36; slot < 40; ++slot) expected.push_back(slot);
  for (const char* spec : {"snapkv:window=32,kernel=1", "adakv:window=32,kernel=1"}) {
    const KeepSet keep = Select(spec, pot, 8);
    EXPECT_EQ(keep.size(), 8u) << spec;
    EXPECT_TRUE(std::includes(keep.begin(), keep.end(), expected.begin(), expected.end())) << spec;
  }
}

TEST(AdaKv, AFullFloorIsSnapKv) {
  Rng rng(5);
  auto ada = Make("adakv:window=4,kernel=5,floor=1"), snap = Make("snapkv:window=4,kernel=5,pooling=max");
  for (int round = 0; round < 50; ++round) {
    std::vector<Pot> pots(3, Pot(30));
    std::vector<SlotView> views;
    for (int32_t head = 0; head < 3; ++head) {
      Fill(rng, 20, &pots[head].scores);
      pots[head].view.slots = pots[head].slots;
      pots[head].view.scores = pots[head].scores;
      pots[head].view.head = head;
      views.push_back(pots[head].view);
    }
    std::vector<KeepSet> a(3), b(3);
    ada->SelectAll(views, 12, a);
    snap->SelectAll(views, 12, b);
    EXPECT_EQ(a, b);
  }
}

TEST(AdaKv, HeadsCompeteAndHaveTheirFloor) {
  Pot one(8), other(8);
  one.scores = {8, 7, 6, 5, 4, 3, 0, 0};
  other.scores = {1, 0, 0, 0, 0, 0, 0, 0};
  one.view.scores = one.scores;
  other.view.scores = other.scores;
  other.view.head = 1;
  const SlotView views[] = {one.view, other.view};
  std::vector<KeepSet> keeps(2);
  Make("adakv:window=2,kernel=1,floor=0")->SelectAll(views, 4, keeps);
  EXPECT_EQ(keeps, (std::vector<KeepSet>{{0, 1, 2, 3, 6, 7}, {6, 7}}));
  Make("adakv:window=2,kernel=1,floor=0.5")->SelectAll(views, 4, keeps);
  EXPECT_EQ(keeps, (std::vector<KeepSet>{{0, 1, 2, 6, 7}, {0, 6, 7}}));
}

TEST(PyramidKv, SharesTheBudgetAmongLayers) {
  Rng rng(6);
  for (int32_t n_layers : {1, 2, 3, 7, 30}) {
    for (int32_t n_keep : {9, 20, 50}) {
      for (int32_t n_pins : {0, 6}) {
        std::vector<Pot> pots(static_cast<size_t>(n_layers), Pot(120));
        std::vector<SlotView> views;
        for (int32_t layer = 0; layer < n_layers; ++layer) {
          Pot& pot = pots[layer];
          Fill(rng, 20, &pot.scores);
          for (int32_t slot = 0; slot < n_pins; ++slot) pot.slots[slot * 7].pinned = true;
          pot.view.slots = pot.slots;
          pot.view.scores = pot.scores;
          pot.view.layer = layer;
          pot.view.n_layers = n_layers;
          views.push_back(pot.view);
        }
        std::vector<KeepSet> keeps(views.size());
        Make("pyramidkv:window=4,beta=20")->SelectAll(views, n_keep, keeps);
        int64_t total = 0;
        for (size_t layer = 0; layer < keeps.size(); ++layer) {
          total += std::ssize(keeps[layer]);
          EXPECT_LE(std::ssize(keeps[layer]), 2 * n_keep);
          EXPECT_GE(std::ssize(keeps[layer]), n_pins);
          if (layer > 0) {
            EXPECT_LE(std::ssize(keeps[layer]), std::ssize(keeps[layer - 1]) + 1);  // a slot freed
          }
        }
        EXPECT_EQ(total, int64_t{n_layers} * n_keep);
        if (n_layers > 1 && n_keep > 9) {
          EXPECT_GT(std::ssize(keeps.front()), 3 * std::ssize(keeps.back()) / 2);
        }
      }
    }
  }
}

// More pins than a budget: all of them stay, and nothing else.
TEST(PyramidKv, PinsBeyondTheBudgetStay) {
  Rng rng(7);
  std::vector<Pot> pots(2, Pot(40));
  std::vector<SlotView> views;
  for (int32_t layer = 0; layer < 2; ++layer) {
    Pot& pot = pots[layer];
    Fill(rng, 20, &pot.scores);
    for (int32_t slot = 0; slot < 20; ++slot) pot.slots[slot].pinned = true;
    pot.view.slots = pot.slots;
    pot.view.scores = pot.scores;
    pot.view.layer = layer;
    pot.view.n_layers = 2;
    views.push_back(pot.view);
  }
  std::vector<KeepSet> keeps(views.size());
  Make("pyramidkv:window=4")->SelectAll(views, 9, keeps);
  for (const KeepSet& keep : keeps) EXPECT_EQ(keep.size(), 20u);
}

// Layers of two shapes, one inside the other: each shape is a pyramid that keeps to its own slots, as if it were the
// whole model.
TEST(PyramidKv, LayersOfEachShapeAreAPyramid) {
  const std::vector<int32_t> pools = {0, 0, 2, 0, 2, 2};
  Rng rng(8);
  std::vector<Pot> pots(pools.size(), Pot(90));
  std::vector<SlotView> views, of_one[2];
  for (size_t layer = 0; layer < pools.size(); ++layer) {
    Pot& pot = pots[layer];
    Fill(rng, 20, &pot.scores);
    pot.view.slots = pot.slots;
    pot.view.scores = pot.scores;
    pot.view.layer = static_cast<int32_t>(layer);
    pot.view.n_layers = static_cast<int32_t>(pools.size());
    pot.view.pool = pools[layer];
    views.push_back(pot.view);
    std::vector<SlotView>& alone = of_one[pools[layer] == 0 ? 0 : 1];
    alone.push_back(pot.view);
    alone.back().layer = static_cast<int32_t>(alone.size()) - 1;
    alone.back().n_layers = 3;
    alone.back().pool = 0;
  }
  const auto policy = Make("pyramidkv:window=4,beta=5");
  std::vector<KeepSet> keeps(views.size());
  policy->SelectAll(views, 40, keeps);
  for (const int32_t pool : {0, 2}) {
    std::vector<KeepSet> got, want(3);
    for (size_t layer = 0; layer < pools.size(); ++layer) {
      if (pools[layer] == pool) got.push_back(keeps[layer]);
    }
    policy->SelectAll(of_one[pool / 2], 40, want);
    EXPECT_EQ(got, want);
    EXPECT_EQ(got[0].size() + got[1].size() + got[2].size(), 3u * 40);
    EXPECT_GT(got[0].size(), got[2].size());
  }
}

// A full pot that is read into on and on: layers start equal and come to have the published shape, C being all that a
// chunk leaves free.
TEST(PyramidKv, AFullPotGrowsIntoThePublishedShape) {
  constexpr int32_t kLayers = 5, kPot = 64, kChunk = 4, kWindow = 4, kBeta = 5;
  const auto policy = Make("pyramidkv:window=4,beta=5,step=1");
  const int32_t n_keep = policy->TargetSlots(kPot, kChunk);
  ASSERT_EQ(n_keep, kPot - kChunk) << "no more is freed than is needed";
  Rng rng(7);
  std::vector<int32_t> sizes(kLayers, kPot);
  for (int round = 0; round < 60; ++round) {
    std::vector<Pot> pots;
    std::vector<SlotView> views;
    for (int32_t layer = 0; layer < kLayers; ++layer) Fill(rng, 20, &pots.emplace_back(sizes[layer]).scores);
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      pots[layer].view.slots = pots[layer].slots;
      pots[layer].view.scores = pots[layer].scores;
      pots[layer].view.layer = layer;
      pots[layer].view.n_layers = kLayers;
      views.push_back(pots[layer].view);
    }
    std::vector<KeepSet> keeps(views.size());
    policy->SelectAll(views, n_keep, keeps);
    int32_t total = 0;
    for (size_t layer = 0; layer < keeps.size(); ++layer) {
      sizes[layer] = static_cast<int32_t>(std::ssize(keeps[layer])) + kChunk;
      total += sizes[layer] - kChunk;
    }
    ASSERT_EQ(total, kLayers * n_keep) << "round " << round;
  }
  const int32_t low = (n_keep - kWindow) / kBeta, high = 2 * (n_keep - kWindow) - low;
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    const int32_t published = high - layer * ((high - low) / (kLayers - 1)) + kWindow;
    EXPECT_NEAR(sizes[layer] - kChunk, published, kLayers / 2 + 1) << "layer " << layer;  // less what rounding added
  }
}

TEST(H2o, CountsMakeMeans) {
  Pot pot(6);
  pot.scores = {5, 1, 9, 2, 0, 0};
  pot.view.scores = pot.scores;
  EXPECT_EQ(Select("h2o:recent=2", pot, 4), (KeepSet{0, 2, 4, 5}));
  EXPECT_EQ(Select("h2o:recent=0", pot, 3), (KeepSet{0, 2, 3}));
  EXPECT_EQ(Select("h2o:recent=5", pot, 2), (KeepSet{4, 5}));
  EXPECT_EQ(Select("h2o:share=0.5", pot, 4), (KeepSet{0, 2, 4, 5}));
  // 5/6, 1/5, 9/4, 2/3 of a query each.
  EXPECT_EQ(Select("h2o:recent=0,normalise=count", pot, 2), (KeepSet{0, 2}));
  pot.scores[3] = 3;  // 3/3
  EXPECT_EQ(Select("h2o:recent=0,normalise=count", pot, 2), (KeepSet{2, 3}));
}

TEST(Keyformer, RanksSumsAndDeclaresItsNoise) {
  Pot pot(6);
  pot.scores = {5, 1, 9, 2, 0, 0};
  pot.view.scores = pot.scores;
  EXPECT_EQ(Select("keyformer:recent=2", pot, 4), (KeepSet{0, 2, 4, 5}));
  EXPECT_EQ(Select("keyformer:share=0.5", pot, 4), Select("h2o", pot, 4));
  const PolicyNeeds needs = Make("keyformer:seed=3,tau=1,tau_end=3,length=4")->Needs();
  EXPECT_EQ(needs.evidence.rows, EvidenceRows::kAll);
  EXPECT_TRUE(needs.evidence.noise.on);
  EXPECT_EQ(needs.evidence.noise.seed, 3u);
  EXPECT_EQ(needs.evidence.noise.tau_step, 0.5f);
  EXPECT_EQ(needs.evidence.noise.tau_end, 3.0f);
  EXPECT_FALSE(Make("h2o")->Needs().evidence.noise.on);
  EXPECT_EQ(ParsePolicySpec("keyformer:tau=2,tau_end=1")->Make().status().code(), StatusCode::kInvalidArgument);
}

TEST(SirLlm, SurpriseSinksAndTheNewest) {
  Pot pot(7);
  pot.nll = {0, 9, 1, 8, 2, 7, 3};
  pot.view.nll = pot.nll;
  EXPECT_EQ(Select("sirllm:sinks=1", pot, 4), (KeepSet{0, 1, 3, 5}));
  pot.nll = {9, 0, 1, 8, 2, 7, 3};
  EXPECT_EQ(Select("sirllm:sinks=1", pot, 4), (KeepSet{0, 3, 5, 6}));
  EXPECT_EQ(Select("sirllm:sinks=1,recent=3", pot, 4), (KeepSet{0, 4, 5, 6}));
  EXPECT_FLOAT_EQ(Make("sirllm:decay=0.7")->Needs().nll_decay, 0.7f);
}

// Slots that were read after the votes hold zeros; they are recent, not unattended.
TEST(Unscored, AreRecentUpToHalfTheBudget) {
  for (const char* spec :
       {"tova", "inf_mllm:recent=1", "snapkv:window=1,kernel=1", "weir:sinks=0,beta=1,saddle=0,saddles=always"}) {
    Pot pot(40);
    for (int32_t slot = 0; slot < 30; ++slot) pot.scores[slot] = 1;
    pot.view.n_unscored = 10;
    KeepSet keep = Select(spec, pot, 24);
    EXPECT_EQ(KeepSet(keep.end() - 10, keep.end()), Newest(40, 10)) << spec;
    pot.view.n_unscored = 39;
    keep = Select(spec, pot, 24);
    EXPECT_EQ(keep.size(), 24u) << spec;
    EXPECT_EQ(KeepSet(keep.end() - 12, keep.end()), Newest(40, 12)) << spec;
  }
}

TEST(Random, DependsOnItsSeedAndNothingElse) {
  Pot pot(1000);
  const KeepSet keep = Select("random:seed=7", pot, 500);
  EXPECT_EQ(Select("random:seed=7", pot, 500), keep);
  EXPECT_NE(Select("random:seed=8", pot, 500), keep);
  pot.view.head = 1;
  EXPECT_NE(Select("random:seed=7", pot, 500), keep);
  pot.view.head = 0;
  pot.view.n_seen = 2000;
  EXPECT_NE(Select("random:seed=7", pot, 500), keep);
  EXPECT_EQ(Select("random:seed=7,draw=once", pot, 500), [&] {
    pot.view.n_seen = 1000;
    return Select("random:seed=7,draw=once", pot, 500);
  }());
  const KeepSet recent = Select("random:recent=100", pot, 101);
  EXPECT_EQ(KeepSet(recent.begin() + 1, recent.end()), Newest(1000, 100));
}

TEST(Random, EverySlotHasTheSameChance) {
  Pot pot(100);
  std::vector<int> kept(100);
  constexpr int kDraws = 2000;
  for (int seed = 0; seed < kDraws; ++seed) {
    for (int32_t slot : Select("random:seed=" + std::to_string(seed), pot, 25)) ++kept[slot];
  }
  // Standard deviation of a slot's count: 19. A chi-square of 99 degrees is above 160 once in 10,000 times.
  double chi = 0;
  for (int count : kept) chi += (count - kDraws / 4.0) * (count - kDraws / 4.0) / (kDraws * 0.25 * 0.75);
  EXPECT_LT(chi, 160);
}

// One lot for life makes the kept tokens a uniform sample of everything read: no part of the stream is favoured.
TEST(Random, OneLotForLifeSamplesTheStream) {
  double mean_once = 0, mean_again = 0;
  for (const char* draw : {"once", "again"}) {
    double sum = 0;
    int64_t n = 0;
    for (int seed = 0; seed < 40; ++seed) {
      auto policy = Make("random:draw=" + std::string(draw) + ",seed=" + std::to_string(seed));
      std::vector<SlotMeta> slots;
      for (int64_t seq = 0; seq <= 4000; ++seq) {
        if (slots.size() == 100 || seq == 4000) {
          Pot pot(static_cast<int32_t>(slots.size()));
          pot.view.slots = slots;
          pot.view.n_seen = seq;
          std::vector<SlotMeta> left;
          for (int32_t slot : Select(*policy, pot, 80)) left.push_back(slots[slot]);
          slots = left;
        }
        if (seq < 4000) slots.emplace_back().seq = seq;
      }
      for (const SlotMeta& slot : slots) sum += static_cast<double>(slot.seq);
      n += std::ssize(slots);
    }
    (std::string(draw) == "once" ? mean_once : mean_again) = sum / static_cast<double>(n);
  }
  EXPECT_NEAR(mean_once, 2000, 100);  // its standard deviation is 20
  EXPECT_GT(mean_again, 3500);
}

}  // namespace
}  // namespace weir
