// SPDX-License-Identifier: Apache-2.0
// Policies that distinguish kinds of tokens: facts that follow from their definitions. The slots they keep are tested
// in tests/golden/policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "policy/policy.h"
#include "policy/rank.h"

namespace weir {
namespace {

struct Stream {
  std::vector<SlotMeta> slots;
  std::vector<float> scores, novelty, visual, scenes;

  void Text(int n) {
    for (int i = 0; i < n; ++i) Add(Modality::kText, 0);
  }
  void Frame(int n_rows, int64_t t_ms) {
    t_ms_ = t_ms;
    for (int row = 0; row < n_rows; ++row) Add(Modality::kVideo, row);
  }
  SlotView View() const {
    SlotView view;
    view.layer = view.head = 0;
    view.n_layers = view.n_kv_heads = 1;
    view.slots = slots;
    view.scores = scores;
    view.novelty = novelty;
    view.visual = visual;
    view.scenes = scenes;
    view.n_rows = 1;
    view.n_seen = std::ssize(slots);
    return view;
  }

 private:
  void Add(Modality modality, int row) {
    SlotMeta m;
    m.seq = std::ssize(slots);
    m.t_src_ms = t_ms_;
    m.modality = modality;
    m.row = static_cast<uint16_t>(row);
    m.token_id = modality == Modality::kText ? 1 : -1;
    slots.push_back(m);
    scores.push_back(static_cast<float>(rng_.Below(1000)));
    novelty.push_back(static_cast<float>(rng_.Below(1000)) / 500 - 1);
  }
  Rng rng_{5};
  int64_t t_ms_ = 0;
};

KeepSet Keep(const std::string& spec, const Stream& stream, int32_t n_keep) {
  auto policy = std::move(std::move(ParsePolicySpec(spec)).value().Make()).value();
  KeepSet keep;
  policy->Select(stream.View(), n_keep, &keep);
  EXPECT_EQ(std::ssize(keep), std::min<int64_t>(n_keep, std::ssize(stream.slots)));
  return keep;
}

Stream Mixed() {
  Stream stream;
  stream.Text(6);
  for (int frame = 0; frame < 8; ++frame) {
    stream.Frame(5, 1000 * frame);
    if (frame % 3 == 2) stream.Text(4);
  }
  return stream;
}

TEST(VisualPolicies, WithoutPicturesTheyAreKnownOnes) {
  Stream text;
  text.Text(40);
  for (const int32_t n_keep : {7, 20, 39}) {
    EXPECT_EQ(Keep("lookm:share=0.5", text, n_keep), Keep("h2o:share=0.5", text, n_keep));
    EXPECT_EQ(Keep("last_frames", text, n_keep), Keep("window", text, n_keep));
    EXPECT_EQ(Keep("streaming_vlm:sinks=4", text, n_keep), Keep("streaming_llm:sinks=4", text, n_keep));
    EXPECT_EQ(Keep("infinipot_v:text=0", text, n_keep), Keep("value_norm", text, n_keep));
  }
}

// The rows that a layer passes on: all text, and the share of what was seen that the last row attends to most.
TEST(VisualPolicies, FastVDropsAShareOfWhatWasSeen) {
  const Stream stream = Mixed();  // 40 rows of frames
  SlotView view = stream.View();
  view.n_seen_visual = 40;
  for (const auto& [share, n_stay] : {std::pair<const char*, int>{"0.25", 30}, {"0.5", 20}, {"1", 0}}) {
    auto policy = std::move(ParsePolicySpec(std::string("fastv:R=") + share).value().Make()).value();
    KeepSet keep;
    policy->SelectRows(view, &keep);
    const auto is_text = [&](int32_t slot) { return stream.slots[slot].modality == Modality::kText; };
    const int64_t n_text = std::count_if(keep.begin(), keep.end(), is_text);
    EXPECT_EQ(n_text, std::ssize(stream.slots) - 40) << share;
    EXPECT_EQ(std::ssize(keep) - n_text, n_stay) << share;
    float least = 1000, most = -1;  // of those that stay and those that go
    for (int32_t slot = 0; slot < std::ssize(stream.slots); ++slot) {
      if (is_text(slot)) continue;
      const bool stays = std::binary_search(keep.begin(), keep.end(), slot);
      (stays ? least : most) = stays ? std::min(least, stream.scores[slot]) : std::max(most, stream.scores[slot]);
    }
    EXPECT_GE(least, most) << share;
  }
}

// A frame that was read since the newest vote has no score yet. In a stream it is what the next question is about.
TEST(VisualPolicies, TheNewestFrameStaysBeforeAnythingVotedOnIt) {
  for (const char* spec : {"a_vl", "fastv", "h2o", "inf_mllm", "infinipot_v", "last_frames", "lookm",
                           "snapkv:window=16", "streaming_vlm", "weir"}) {
    Stream stream;
    stream.Text(4);
    for (int frame = 0; frame < 6; ++frame) {
      stream.Frame(12, 1000 * frame);
      stream.Text(4);
    }
    stream.Frame(12, 6000);
    const auto n = static_cast<int32_t>(std::ssize(stream.slots));
    std::fill(stream.scores.end() - 12, stream.scores.end(), 0.0f);
    SlotView view = stream.View();
    view.n_unscored = 12;
    view.n_seen_visual = 7 * 12;
    std::vector<float> nll(stream.slots.size(), 1.0f);
    view.nll = nll;
    auto policy = std::move(std::move(ParsePolicySpec(spec)).value().Make()).value();
    KeepSet keep;
    policy->Select(view, 48, &keep);
    for (int32_t s = n - 12; s < n; ++s)
      EXPECT_TRUE(std::binary_search(keep.begin(), keep.end(), s)) << spec << " " << s;
  }
}

// In the third quarter of the layers a visual token is pooled with the visual tokens before and after it, those at the
// ends with nothing; text is not.
TEST(VisualPolicies, InfiniPotVPoolsARowOfVisualTokens) {
  Stream stream;
  stream.Text(1);
  stream.Frame(2, 0);
  stream.Text(1);
  stream.Frame(1, 1000);
  stream.scores = {300, 10, 20, 90, 30};
  SlotView view = stream.View();
  view.layer = 2;
  view.n_layers = 4;
  auto policy = std::move(std::move(ParsePolicySpec("infinipot_v:pool=on,alpha=0,text=0")).value().Make()).value();
  // Pooled: 300, (0 + 10 + 20) / 3, (10 + 20 + 30) / 3, 90, (20 + 30 + 0) / 3.
  const std::vector<KeepSet> want = {{0}, {0, 3}, {0, 2, 3}, {0, 2, 3, 4}};
  for (size_t n = 0; n < want.size(); ++n) {
    KeepSet keep;
    policy->Select(view, static_cast<int32_t>(n) + 1, &keep);
    EXPECT_EQ(keep, want[n]);
  }
}

// When the pot was too small for floor(S N), the core is a part of what is held, not of all that was ever seen.
TEST(VisualPolicies, AVlReadsACoreOfWhatIsHeld) {
  Stream stream;
  stream.Text(4);
  stream.Frame(60, 0);
  auto policy = std::move(std::move(ParsePolicySpec("a_vl:S=0.5,C=0.3")).value().Make()).value();
  const auto n_read = [&](int64_t n_seen_visual) {
    SlotView view = stream.View();
    view.n_seen_visual = n_seen_visual;
    KeepSet read;
    policy->SelectRead(view, &read);
    return std::ssize(read);
  };
  EXPECT_EQ(n_read(120), 4 + 36);        // 60 are floor(S N), so floor(C N)
  EXPECT_EQ(n_read(1'000'000), 4 + 36);  // C / S of 60
}

// At a later prompt the filter's layer holds a part of the tokens it judged at the first: that says nothing about the
// others.
TEST(VisualPolicies, AVlFiltersOnlyWhatItsFilterHolds) {
  Stream first, second;
  for (Stream* stream : {&first, &second}) {
    stream->Text(4);
    stream->Frame(100, 0);
    stream->Text(6);
  }
  // Of a hundred visual tokens, layer 1 has kept the first half, layer 2 the other.
  const auto without = [](const Stream& stream, int64_t begin) {
    Stream out = stream;
    std::erase_if(out.slots, [=](const SlotMeta& m) { return m.seq >= begin && m.seq < begin + 50; });
    out.scores.resize(out.slots.size());
    return out;
  };
  const Stream layers[] = {first, without(first, 54), without(second, 4)};
  std::vector<SlotView> views;
  for (int32_t layer = 0; layer < 3; ++layer) {
    SlotView view = layers[layer].View();
    view.layer = layer;
    view.head = -1;
    view.n_layers = 3;
    view.n_seen = 110;
    view.n_seen_visual = 100;
    views.push_back(view);
  }
  auto policy = std::move(std::move(ParsePolicySpec("a_vl:S=0.5,P=0.9")).value().Make()).value();
  std::vector<KeepSet> keeps(3);
  policy->SelectAfterPrompt(views, keeps);
  const auto n_visual = [&](int layer) {
    return std::count_if(keeps[layer].begin(), keeps[layer].end(),
                         [&](int32_t slot) { return views[layer].slots[slot].modality != Modality::kText; });
  };
  EXPECT_EQ(n_visual(1), 50);
  EXPECT_EQ(n_visual(2), 50);
}

TEST(VisualPolicies, LookMKeepsTextBeforePictures) {
  const Stream stream = Mixed();
  const auto n_text = std::count_if(stream.slots.begin(), stream.slots.end(),
                                    [](const SlotMeta& m) { return m.modality == Modality::kText; });
  const KeepSet keep = Keep("lookm:share=0", stream, static_cast<int32_t>(n_text) + 6);
  int64_t n_kept_text = 0;
  float worst = 1e9f;
  for (const int32_t s : keep) {
    if (stream.slots[s].modality == Modality::kText) {
      ++n_kept_text;
    } else {
      worst = std::min(worst, stream.scores[s]);
    }
  }
  EXPECT_EQ(n_kept_text, n_text);
  for (size_t s = 0; s < stream.slots.size(); ++s) {
    const bool kept = std::binary_search(keep.begin(), keep.end(), static_cast<int32_t>(s));
    if (!kept) {
      EXPECT_LE(stream.scores[s], worst) << "a picture's token left for a lesser one";
    }
  }
}

TEST(VisualPolicies, LastFramesKeepsWholeFrames) {
  const Stream stream = Mixed();
  // Room for the text share and three of five frames.
  const KeepSet keep = Keep("last_frames:text=0.25,frames=2", stream, 24);
  int64_t n_visual = 0;
  for (const int32_t s : keep) n_visual += stream.slots[s].modality == Modality::kVideo;
  EXPECT_EQ(n_visual, 24 - 6 - 8);  // all text fits beside two frames
  for (const int32_t s : keep) {
    if (stream.slots[s].modality == Modality::kVideo) EXPECT_GE(stream.slots[s].t_src_ms, 6000);
  }
}

TEST(VisualPolicies, StreamingVlmForgetsOldFramesBeforeText) {
  const Stream stream = Mixed();
  const KeepSet keep = Keep("streaming_vlm:sinks=4,text=512,seconds=1.5", stream, 30);
  for (const int32_t s : {0, 1, 2, 3}) EXPECT_EQ(keep[static_cast<size_t>(s)], s);
  int64_t n_new = 0;
  for (const int32_t s : keep) {
    n_new += stream.slots[s].modality == Modality::kVideo && stream.slots[s].t_src_ms >= 5500;
  }
  EXPECT_EQ(n_new, 10) << "the two frames of the last 1.5 seconds";
}

TEST(VisualPolicies, InfiniPotVKeepsRecentFramesAndWhatIsNew) {
  const Stream stream = Mixed();
  // All by TaR: a quarter of 8 frames is recent, 10 tokens; 6 older ones follow by novelty.
  const KeepSet keep = Keep("infinipot_v:alpha=1,text=0,recent=0.25", stream, 16);
  const std::vector<int64_t> recent = RecentFrames(stream.slots, 0.25);
  ASSERT_EQ(recent.size(), 2u);
  int64_t n_recent = 0;
  float worst = 1e9f;
  for (const int32_t s : keep) {
    ASSERT_EQ(stream.slots[s].modality, Modality::kVideo);
    if (stream.slots[s].frame() >= recent.front()) {
      ++n_recent;
    } else {
      worst = std::min(worst, stream.novelty[s]);
    }
  }
  EXPECT_EQ(n_recent, 10);
  for (size_t s = 0; s < stream.slots.size(); ++s) {
    const SlotMeta& m = stream.slots[s];
    if (m.modality == Modality::kText || m.frame() >= recent.front()) continue;
    const bool kept = std::binary_search(keep.begin(), keep.end(), static_cast<int32_t>(s));
    if (!kept) EXPECT_LE(stream.novelty[s], worst);
  }
  EXPECT_EQ(Keep("infinipot_v:alpha=0,text=0", stream, 16), Keep("value_norm", stream, 16));
}

// The published pooling of value norms, place by place: 7 x 7, 5 x 5, 3 in a row, none.
TEST(VisualPolicies, InfiniPotVPoolsNormsByLayers) {
  constexpr int64_t kColumns = 5, kRows = 6;
  Stream stream;
  stream.Text(3);
  for (int frame = 0; frame < 3; ++frame) stream.Frame(kColumns * kRows, 1000 * frame);
  for (SlotMeta& slot : stream.slots) {
    if (slot.modality != Modality::kText) slot.token_id = -kColumns;
  }
  // One token of the second frame is gone: its place counts as nothing.
  constexpr size_t kGone = 3 + kColumns * kRows + 12;
  stream.slots.erase(stream.slots.begin() + kGone);
  stream.scores.erase(stream.scores.begin() + kGone);
  stream.novelty.erase(stream.novelty.begin() + kGone);
  const size_t n = stream.slots.size();
  for (int32_t layer = 0; layer < 9; ++layer) {
    std::vector<double> want(stream.scores.begin(), stream.scores.end());
    const int32_t quarter = 4 * layer / 9;
    for (size_t s = 3; s < n && quarter < 3; ++s) {
      want[s] = 0;
      const int64_t half = 3 - quarter;
      for (size_t other = 3; other < n; ++other) {
        const SlotMeta &a = stream.slots[s], &b = stream.slots[other];
        const bool in_row = quarter == 2 && other + 1 >= s && other <= s + 1;
        const bool in_frame = quarter < 2 && a.frame() == b.frame() &&
                              std::abs(a.row / kColumns - b.row / kColumns) <= half &&
                              std::abs(a.row % kColumns - b.row % kColumns) <= half;
        if (in_row || in_frame) want[s] += stream.scores[other];
      }
      want[s] /= quarter == 2 ? 3.0 : static_cast<double>((2 * half + 1) * (2 * half + 1));
    }
    std::vector<float> expected(want.begin(), want.end());
    auto policy = std::move(std::move(ParsePolicySpec("infinipot_v:alpha=0,text=0,pool=on")).value().Make()).value();
    SlotView view = stream.View();
    view.layer = layer;
    view.n_layers = 9;
    for (const int32_t n_keep : {1, 7, 20, 45, 80}) {
      SlotPicker picker;
      picker.Begin(stream.slots, n_keep);
      picker.TakeBest({expected, stream.scores}, static_cast<int32_t>(n), n_keep);
      KeepSet best, keep;
      picker.Finish(&best);
      policy->Select(view, n_keep, &keep);
      EXPECT_EQ(keep, best) << "layer " << layer << ", " << n_keep << " slots";
    }
  }
}

// Visual tokens count as the median of the text: neither before all of it nor behind.
TEST(VisualPolicies, InfiniPotRanksPicturesAmidTheText) {
  Stream stream;
  stream.Text(9);
  stream.Frame(20, 1000);
  std::vector<float> nll(29, 0.0f);
  for (size_t s = 1; s < 9; ++s) nll[s] = static_cast<float>(s);
  nll[0] = std::numeric_limits<float>::infinity();
  for (size_t s = 0; s < 29; ++s) stream.scores[s] = s < 9 ? 0 : 0.25f;
  stream.scores[11] = 0.75f;
  stream.scores[13] = 0.5f;
  SlotView view = stream.View();
  view.nll = nll;
  auto policy = std::move(std::move(ParsePolicySpec("infinipot:alpha=1")).value().Make()).value();
  auto half = std::move(std::move(ParsePolicySpec("infinipot:alpha=0.5")).value().Make()).value();
  KeepSet keep;
  half->Select(view, 14, &keep);
  EXPECT_EQ(keep, (KeepSet{0, 5, 6, 7, 8, 11, 13, 22, 23, 24, 25, 26, 27, 28}))
      << "by surprise the first, the text above the median of 4.5 and the best two of the picture; then by u";
  view.scores = {};
  policy->Select(view, 8, &keep);
  EXPECT_EQ(keep, (KeepSet{0, 5, 6, 7, 8, 26, 27, 28})) << "without u the newest of the picture";
}

// The kept slots of each frame, oldest frame first.
std::vector<KeepSet> KeptOfFrames(const Stream& stream, const KeepSet& keep) {
  std::vector<KeepSet> out;
  int64_t frame = -1;
  for (size_t s = 0; s < stream.slots.size(); ++s) {
    const SlotMeta& m = stream.slots[s];
    if (m.modality == Modality::kText) continue;
    if (m.frame() != frame) out.emplace_back();
    frame = m.frame();
    const auto slot = static_cast<int32_t>(s);
    if (std::binary_search(keep.begin(), keep.end(), slot)) out.back().push_back(slot);
  }
  return out;
}

// Every frame is a scene of its own here; policy/weir_test.cc has scenes of several frames.
TEST(VisualPolicies, WeirKeepsTheBestRowsOfEverySceneNewestFirst) {
  Stream stream = Mixed();
  Rng rng(6);
  int64_t frame = -1;
  int n_frames = 0;
  for (const SlotMeta& m : stream.slots) {
    stream.visual.push_back(static_cast<float>(rng.Below(1000)) / 500 - 1);
    n_frames += m.modality != Modality::kText && m.frame() != frame;
    if (m.modality != Modality::kText) frame = m.frame();
    stream.scenes.push_back(m.modality == Modality::kText ? 0.0f : static_cast<float>(n_frames));
  }
  ASSERT_EQ(n_frames, 8);
  const std::string spec = "weir:alpha=0,beta=0,sinks=2,recent=0.25,first=0,frame_rows=2";
  // 2 sinks and a quarter of the newest; then 2 of each frame, or more where there is room for more of each.
  for (const int32_t n_keep : {9, 13, 16, 17, 28, 34, 43}) {
    const int32_t n_newest = RoundHalfUp(0.25 * n_keep);
    int32_t left = n_keep - n_newest - 2;
    std::vector<KeepSet> expected(8), free(8);
    for (int f = 7; f >= 0; --f) {
      const int64_t first = stream.slots[0].seq + 6 + 5 * f + 4 * (f / 3);
      for (int32_t s = static_cast<int32_t>(first); s < first + 5; ++s) {
        (s >= std::ssize(stream.slots) - n_newest ? expected : free)[f].push_back(s);
      }
      std::sort(free[f].begin(), free[f].end(),
                [&](int32_t a, int32_t b) { return stream.visual[a] > stream.visual[b]; });
    }
    int32_t each = 2;
    for (const int32_t more : {3, 4, 5}) {
      int32_t sum = 0;
      for (const KeepSet& rows : free) sum += std::min<int32_t>(more, static_cast<int32_t>(rows.size()));
      if (sum <= left) each = more;
    }
    const std::vector<KeepSet> kept = KeptOfFrames(stream, Keep(spec, stream, n_keep));
    ASSERT_EQ(kept.size(), 8u);
    for (int f = 7; f >= 0; --f) {
      for (size_t i = 0; i < free[f].size() && std::cmp_less(i, each) && left > 0; ++i, --left) {
        expected[f].push_back(free[f][i]);
      }
      std::sort(expected[f].begin(), expected[f].end());
      // What is left over goes to the newest.
      EXPECT_TRUE(std::includes(kept[f].begin(), kept[f].end(), expected[f].begin(), expected[f].end()))
          << "frame " << f << " of " << n_keep;
      if (n_keep <= 17) {
        EXPECT_EQ(kept[static_cast<size_t>(f)], expected[f]) << "frame " << f << " of " << n_keep;
      }
    }
  }
  // Without a picture so far, or without rows to keep of it, pictures are treated like other tokens.
  Stream unseen = stream;
  unseen.visual.clear();
  unseen.scenes.clear();
  EXPECT_EQ(Keep(spec, unseen, 20), Keep("streaming_llm:sinks=2", stream, 20));
  EXPECT_EQ(Keep("weir:alpha=0,beta=0,sinks=2,recent=0.25,frame_rows=0", stream, 20),
            Keep("streaming_llm:sinks=2", stream, 20));
}

TEST(VisualPolicies, PicturesDoNotSurpriseWeir) {
  Stream stream = Mixed();
  std::vector<float> nll;
  for (const SlotMeta& m : stream.slots) nll.push_back(m.modality == Modality::kText ? 2.0f : 0.0f);
  nll[0] = std::numeric_limits<float>::infinity();
  SlotView view = stream.View();
  view.nll = nll;
  auto policy =
      std::move(std::move(ParsePolicySpec("weir:sinks=0,beta=0,kernel=1,frame_rows=0")).value().Make()).value();
  KeepSet keep;
  policy->Select(view, 20, &keep);
  KeepSet expected(20);  // nothing predicted the first token
  std::iota(expected.begin() + 1, expected.end(), static_cast<int32_t>(stream.slots.size()) - 19);
  EXPECT_EQ(keep, expected) << "zeros of visual tokens make no ordinary word a surprise";
}

TEST(VisualPolicies, RecentFramesAreAShareAndAtLeastOne) {
  Stream none;
  none.Text(3);
  EXPECT_TRUE(RecentFrames(none.slots, 0.5).empty());
  const Stream stream = Mixed();
  EXPECT_EQ(RecentFrames(stream.slots, 0.01).size(), 1u);
  EXPECT_EQ(RecentFrames(stream.slots, 0.5).size(), 4u);
  EXPECT_EQ(RecentFrames(stream.slots, 1).size(), 8u);
}

}  // namespace
}  // namespace weir
