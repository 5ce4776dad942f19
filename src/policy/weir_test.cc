// SPDX-License-Identifier: Apache-2.0
// The guarantees of the `weir` rule: no slots are spent where nothing stands out, and what does is kept at any age.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "policy/policy.h"
#include "policy/rank.h"

namespace weir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::unique_ptr<Policy> Make(const std::string& options) {
  Result<PolicySpec> parsed = ParsePolicySpec(options.empty() ? "weir" : "weir:" + options);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return std::move(parsed->Make()).value();
}

// One head's slots; all have the same surprise and attention.
struct Pot {
  std::vector<SlotMeta> slots;
  std::vector<float> scores, nll;
  int32_t n_rows = 1;

  explicit Pot(int32_t n) : slots(n), scores(n, 1.0f / static_cast<float>(n)), nll(n, 2.3f) {
    for (int32_t i = 0; i < n; ++i) slots[i].seq = i;
  }
  SlotView View() const {
    SlotView view;
    view.layer = view.head = 0;
    view.n_layers = view.n_kv_heads = 1;
    view.slots = slots;
    view.scores = scores;
    view.nll = nll;
    view.n_rows = n_rows;
    view.n_seen = slots.back().seq + 1;
    return view;
  }
};

KeepSet Select(const std::string& options, const Pot& pot, int32_t n_keep) {
  KeepSet keep;
  Make(options)->Select(pot.View(), n_keep, &keep);
  return keep;
}

// The first n_head of n slots and the newest ones up to n_keep in total.
KeepSet HeadAndTail(int32_t n, int32_t n_head, int32_t n_keep) {
  KeepSet out(static_cast<size_t>(n_keep));
  std::iota(out.begin(), out.begin() + n_head, 0);
  std::iota(out.begin() + n_head, out.end(), n - (n_keep - n_head));
  return out;
}

bool Keeps(const KeepSet& keep, int32_t slot) { return std::binary_search(keep.begin(), keep.end(), slot); }

TEST(Weir, WhereNothingStandsOutItIsSinksAndTheNewest) {
  Pot pot(100);
  pot.nll[0] = kInf;
  for (const char* options :
       {"", "kernel=1", "kernel=9,sinks=5", "alpha=1,z=0", "alpha=0", "beta=0", "beta=1,saddle=2"}) {
    const int32_t sinks = std::string(options).find("sinks=5") != std::string::npos ? 5 : 4;
    EXPECT_EQ(Select(options, pot, 40), HeadAndTail(100, sinks, 40)) << options;
  }
  EXPECT_EQ(Select("kernel=1,sinks=0,alpha=0", pot, 40), HeadAndTail(100, 0, 40));
}

// A long answer whose slots have no score yet gets half of what pins leave, never all of it.
TEST(Weir, PinsAndALongAnswerLeaveRoomForTheRest) {
  Pot pot(512);
  for (int32_t i = 10; i < 260; ++i) pot.slots[i].pinned = true;
  std::fill(pot.nll.begin() + 300, pot.nll.begin() + 310, 20.0f);
  SlotView view = pot.View();
  view.n_unscored = 180;
  KeepSet keep;
  Make("")->Select(view, 384, &keep);
  for (int32_t slot : {0, 1, 2, 3, 302, 305, 511}) EXPECT_TRUE(Keeps(keep, slot)) << slot;
  // Sinks have priority over slots without a score.
  Pot plain(512);
  view = plain.View();
  view.n_unscored = 500;
  Make("sinks=256")->Select(view, 384, &keep);
  EXPECT_EQ(keep, HeadAndTail(512, 256, 384));
}

TEST(Weir, ASurprisingSpanStaysWhereverItIs) {
  Rng rng(1);
  for (int32_t at = 4; at + 3 <= 100; ++at) {
    Pot pot(100);
    for (float& x : pot.nll) x = static_cast<float>(rng.Below(256)) / 64;
    std::fill(pot.nll.begin() + at, pot.nll.begin() + at + 3, 20.0f);
    const KeepSet keep = Select("", pot, 40);
    EXPECT_EQ(keep.size(), 40u);
    for (int32_t slot = at; slot < at + 3; ++slot) EXPECT_TRUE(Keeps(keep, slot)) << slot;
  }
}

// Selection after selection, until the stream has passed the pot many times over.
TEST(Weir, ASurprisingSpanStaysAtAnyAge) {
  Rng rng(2);
  auto policy = Make("ratio=0.75");
  Pot pot(1);
  for (int64_t seq = 1; seq < 20000; ++seq) {
    if (pot.slots.size() == 128) {
      const int32_t target = policy->TargetSlots(128, 1);
      EXPECT_EQ(target, 96);
      KeepSet keep;
      policy->Select(pot.View(), target, &keep);
      for (size_t i = 0; i < keep.size(); ++i) {
        pot.slots[i] = pot.slots[keep[i]];
        pot.nll[i] = pot.nll[keep[i]];
      }
      pot.slots.resize(keep.size());
      pot.nll.resize(keep.size());
    }
    pot.slots.emplace_back().seq = seq;
    pot.nll.push_back(seq >= 50 && seq < 53 ? 20.0f : static_cast<float>(rng.Below(256)) / 64);
    pot.scores.assign(pot.slots.size(), 1.0f / static_cast<float>(pot.slots.size()));
  }
  std::vector<int64_t> held;
  for (const SlotMeta& slot : pot.slots) held.push_back(slot.seq);
  for (int64_t seq : {0, 1, 2, 3, 50, 51, 52}) EXPECT_TRUE(std::binary_search(held.begin(), held.end(), seq)) << seq;
  // The only slots that may be older than the newest: sinks, and the share of surprise.
  const int64_t n_newest = 96 - 4 - RoundHalfUp(0.35 * 96);
  EXPECT_EQ(held[held.size() - static_cast<size_t>(n_newest)], 20000 - n_newest);
}

TEST(Weir, SharesAreUsedAndNotExceeded) {
  Pot pot(100);
  for (int32_t slot = 0; slot < 100; ++slot) {
    pot.nll[slot] = static_cast<float>(100 - slot);  // the older, the more surprising, and the more attended to
    pot.scores[slot] = static_cast<float>(100 - slot);
  }
  const std::string all = "sinks=0,kernel=1,z=-10,saddle=0,saddles=always,";
  for (const double alpha : {0.0, 0.1, 0.5}) {
    for (const double beta : {0.0, 0.25, 0.4}) {
      const std::string options = all + "alpha=" + std::to_string(alpha) + ",beta=" + std::to_string(beta);
      EXPECT_EQ(Select(options, pot, 40), HeadAndTail(100, RoundHalfUp(alpha * 40) + RoundHalfUp(beta * 40), 40))
          << options;
    }
  }
  // Whatever the shares, the newest slot is kept.
  EXPECT_EQ(Select(all + "alpha=1,beta=1", pot, 40), HeadAndTail(100, 39, 40));
}

TEST(Weir, ASurpriseIsAboveRobustDeviations) {
  // 32 ones and 31 threes beside the planted one: the upper median is 3, the median deviation 2.
  const float bar = 3 + 4 * 1.4826f * 2;
  for (const float planted : {bar - 0.01f, bar + 0.01f, 1e6f}) {
    Pot pot(64);
    for (int32_t slot = 0; slot < 64; ++slot) pot.nll[slot] = slot % 2 == 0 ? 1 : 3;
    pot.nll[9] = planted;
    EXPECT_EQ(Keeps(Select("kernel=1,z=4,beta=0", pot, 16), 9), planted > bar) << planted;
  }
}

TEST(Weir, ASaddleIsAboveItsBarAndThePenaltyOfItsAge) {
  for (const float above : {-0x1p-10f, 0.0f, 0x1p-10f}) {
    Pot pot(64);
    pot.n_rows = 4;  // scores are sums over the rows, the threshold is for one
    std::fill(pot.scores.begin(), pot.scores.end(), 0.0f);
    pot.scores[20] = 4 * (8.0f / 64 + above);
    EXPECT_EQ(Keeps(Select("kernel=1,saddle=8,saddles=always", pot, 16), 20), above > 0) << above;
    pot.scores[20] += 4 * 0.5f * 43 / 64;  // 43 newer slots; every number here is exact
    EXPECT_EQ(Keeps(Select("kernel=1,saddle=8,b=0.5,saddles=always", pot, 16), 20), above > 0) << above;
  }
}

// Sinks of the model that take three quarters of every row change nothing.
TEST(Weir, ASaddleIsOneAmongTheSlots) {
  for (const float above : {-0x1p-10f, 0x1p-10f}) {
    Pot pot(64);
    std::fill(pot.scores.begin(), pot.scores.end(), 0.0f);
    pot.scores[20] = 0.25f * (8.0f / 64 + 0.5f * 43 / 64 + above);
    SlotView view = pot.View();
    view.row_attention = 0.25f;
    KeepSet keep;
    Make("kernel=1,saddle=8,b=0.5,saddles=always")->Select(view, 16, &keep);
    EXPECT_EQ(Keeps(keep, 20), above > 0) << above;
  }
}

TEST(Weir, TextAloneHasNoSaddlesUnlessACatalystVotes) {
  Pot pot(64);
  std::fill(pot.scores.begin(), pot.scores.end(), 0.0f);
  pot.scores[20] = 0.5f;
  EXPECT_FALSE(Keeps(Select("kernel=1", pot, 16), 20));
  EXPECT_TRUE(Keeps(Select("kernel=1,catalyst=\"What now?\"", pot, 16), 20));
  SlotView view = pot.View();
  view.n_seen_visual = 16;  // long gone
  KeepSet keep;
  Make("kernel=1")->Select(view, 16, &keep);
  EXPECT_TRUE(Keeps(keep, 20));
}

// Three scenes of four slots with text behind them; the middle one's second frame repeats its first but for one slot.
TEST(Weir, ScenesShareTheRoom) {
  Pot pot(40);
  std::vector<float> scenes(40), visual(40);
  const auto show = [&](int32_t begin, int32_t n, float scene) {
    for (int32_t i = 0; i < n; ++i) {
      pot.slots[begin + i].modality = Modality::kVideo;
      pot.slots[begin + i].row = static_cast<uint16_t>(i);
      scenes[begin + i] = scene;
      visual[begin + i] = static_cast<float>(-i);  // the earlier, the better
    }
  };
  show(10, 4, 1);
  show(14, 4, 2);
  show(18, 4, -2);
  scenes[20] = 2;
  show(22, 4, 3);
  SlotView view = pot.View();
  view.scenes = scenes;
  view.visual = visual;
  view.n_seen_visual = 16;
  const auto select = [&](const std::string& options, int32_t n_keep) {
    KeepSet keep;
    Make("sinks=0,alpha=0,beta=0,recent=0," + options)->Select(view, n_keep, &keep);
    return keep;
  };
  EXPECT_EQ(select("frame_rows=1,first=0", 7), (KeepSet{10, 11, 14, 15, 22, 23, 39})) << "two of each fit";
  EXPECT_EQ(select("frame_rows=1,first=0", 6), (KeepSet{10, 14, 22, 37, 38, 39})) << "one of each, then the newest";
  EXPECT_EQ(select("frame_rows=3,first=0", 6), (KeepSet{14, 15, 22, 23, 24, 39})) << "at least three of the newest";
  EXPECT_EQ(select("frame_rows=3,first=0.25", 6), (KeepSet{10, 14, 22, 23, 24, 39})) << "the two oldest keep one first";
  EXPECT_EQ(select("frame_rows=9,first=0", 14), (KeepSet{10, 11, 12, 13, 14, 15, 16, 17, 20, 22, 23, 24, 25, 39}));
  EXPECT_EQ(select("frame_rows=0", 6), (KeepSet{34, 35, 36, 37, 38, 39}));
}

TEST(Weir, ASpanCountsNotALoneToken) {
  // Five neighbours at 6 are a sentence; one token at 10 among ordinary ones is a typo.
  Pot pot(100);
  for (int32_t slot = 0; slot < 100; ++slot) pot.nll[slot] = slot % 2 == 0 ? 1 : 3;
  std::fill(pot.nll.begin() + 10, pot.nll.begin() + 15, 6.0f);
  pot.nll[30] = 10;
  const KeepSet keep = Select("beta=0,alpha=0.1,z=4", pot, 40);
  for (int32_t slot = 11; slot < 14; ++slot) EXPECT_TRUE(Keeps(keep, slot)) << slot;
  EXPECT_FALSE(Keeps(keep, 30));
}

// Three means over neighbours hold the same spike; the slot that has it goes first, for either statistic.
TEST(Weir, OfEqualMeansTheSpikeItselfStays) {
  Pot pot(100);
  std::fill(pot.nll.begin(), pot.nll.end(), 0.0f);
  std::fill(pot.scores.begin(), pot.scores.end(), 0.0f);
  pot.nll[20] = 12;
  pot.scores[30] = 0.75f;
  const KeepSet keep = Select("sinks=0,kernel=3,alpha=0.025,beta=0.025,saddles=always", pot, 40);
  KeepSet expected = HeadAndTail(100, 2, 40);
  expected[0] = 20;
  expected[1] = 30;
  EXPECT_EQ(keep, expected);
}

TEST(Weir, AsksForWhatItUses) {
  const PolicyNeeds both = Make("rows=7")->Needs();
  EXPECT_EQ(both.evidence.nll, Normaliser::kSampled);
  EXPECT_EQ(both.evidence.rows, EvidenceRows::kLast);
  EXPECT_EQ(both.evidence.n_last, 7);
  EXPECT_EQ(both.granularity, Granularity::kPerHead);
  EXPECT_EQ(Make("nll=exact")->Needs().evidence.nll, Normaliser::kExact);
  EXPECT_EQ(Make("alpha=0")->Needs().evidence.nll, Normaliser::kNone);
  EXPECT_EQ(Make("beta=0")->Needs().evidence.rows, EvidenceRows::kNone);
  EXPECT_EQ(Make("beta=0")->Needs().evidence.visual_vector, VectorScore::kKeyDiff);
  EXPECT_EQ(Make("beta=0")->Needs().granularity, Granularity::kPerHead);
  EXPECT_EQ(Make("beta=0,frame_rows=0")->Needs().evidence.visual_vector, VectorScore::kNone);
  EXPECT_TRUE(both.evidence.with_pictures);
  EXPECT_FALSE(Make("saddles=always")->Needs().evidence.with_pictures);
  EXPECT_GT(both.evidence.scene_change, 0);
  EXPECT_EQ(Make("frame_rows=0")->Needs().evidence.scene_change, 0);
  EXPECT_EQ(Make("beta=0,frame_rows=0")->Needs().granularity, Granularity::kGlobal);
  const PolicyNeeds probed = Make("catalyst=\"What now?\",rows=7")->Needs();
  EXPECT_EQ(probed.evidence.rows, EvidenceRows::kProbe);
  EXPECT_EQ(probed.probe, "What now?");
  EXPECT_EQ(probed.question_rows, 7);
  EXPECT_FALSE(ParsePolicySpec("weir:kernel=4")->Make().ok());
}

TEST(Weir, AsksForLessWherePicturesAreNotExpected) {
  const PolicyNeeds text = Make("")->NeedsOfText();
  EXPECT_EQ(text.evidence.nll, Normaliser::kSampled);
  EXPECT_FALSE(text.evidence.scores());
  EXPECT_EQ(text.evidence.visual_vector, VectorScore::kNone);
  EXPECT_EQ(text.evidence.scene_change, 0);
  EXPECT_EQ(text.granularity, Granularity::kGlobal);
  EXPECT_EQ(text.min_slots, Make("")->Needs().min_slots);
  // Attention that votes on text goes on to vote, head by head.
  for (const char* options : {"saddles=always", "catalyst=\"What now?\""}) {
    const PolicyNeeds votes = Make(options)->NeedsOfText();
    EXPECT_EQ(votes.evidence.rows, Make(options)->Needs().evidence.rows);
    EXPECT_EQ(votes.probe, Make(options)->Needs().probe);
    EXPECT_EQ(votes.granularity, Granularity::kPerHead);
    EXPECT_EQ(votes.evidence.visual_vector, VectorScore::kNone);
  }
}

}  // namespace
}  // namespace weir
