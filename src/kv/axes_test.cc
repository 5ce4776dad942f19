// SPDX-License-Identifier: Apache-2.0
// Positions on three axes: compared with a naive reference, and attention over them with a naive sum.
#include "kv/axes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/rng.h"
#include "kv/attend.h"

namespace weir {
namespace {

struct Place {
  int32_t time = 0, line = 0, column = 0;
  bool operator==(const Place&) const = default;
};

// A stream of words, pictures of up to 7 lines and columns, the last line of some not full, and frames of videos, up to
// 3 steps apart.
std::vector<SlotMeta> Stream(Rng* rng, int64_t n) {
  std::vector<SlotMeta> out;
  const auto add = [&](Modality modality, int64_t rows, int32_t id) {
    const int64_t first = std::ssize(out);
    for (int64_t i = 0; i < rows; ++i) {
      SlotMeta m;
      m.seq = first + i;
      m.token_id = id;
      m.modality = modality;
      m.row = static_cast<uint16_t>(modality == Modality::kText ? 0 : i);
      out.push_back(m);
    }
  };
  while (std::ssize(out) < n) {
    const int32_t columns = 1 + static_cast<int32_t>(rng->Below(7));
    switch (rng->Below(4)) {
      case 0:
        add(Modality::kImage, 1 + static_cast<int64_t>(rng->Below(40)), VisualId(columns));
        break;
      case 1: {
        const int64_t rows = columns * (1 + static_cast<int64_t>(rng->Below(4)));
        const auto n_frames = 1 + rng->Below(4);
        for (uint64_t frame = 0; frame < n_frames; ++frame) {
          const auto steps = std::min<int64_t>(static_cast<int64_t>(rng->Below(4)), rows);
          add(Modality::kVideo, rows, VisualId(columns, frame == 0 ? -1 : static_cast<int32_t>(steps)));
        }
        break;
      }
      default:
        add(Modality::kText, 1, 7);
    }
  }
  return out;
}

// A word, a picture, or a video: what is held of it, from `first` to before `end`.
struct Piece {
  size_t first = 0, end = 0;
  std::set<int32_t> lines, columns;
  std::vector<int32_t> times;  // of each token
  int32_t size() const {
    return std::max({times.back() + 1, static_cast<int32_t>(lines.size()), static_cast<int32_t>(columns.size())});
  }
};

std::vector<Piece> PiecesOf(const std::vector<SlotMeta>& held) {
  std::vector<Piece> out;
  for (size_t i = 0; i < held.size(); ++i) {
    const SlotMeta& m = held[i];
    const bool text = m.modality == Modality::kText, first = i == 0 || held[i - 1].modality == Modality::kText;
    const bool same_frame = !text && !first && m.frame() == held[i - 1].frame();
    const bool goes_on = !text && !first && StepsOf(m) >= 0 && held[i - 1].modality == Modality::kVideo &&
                         ColumnsOf(held[i - 1]) == ColumnsOf(m);
    if (!same_frame && !goes_on) out.emplace_back().first = i;
    Piece& piece = out.back();
    int32_t time = piece.times.empty() ? 0 : piece.times.back();
    if (!piece.times.empty() && !same_frame) {
      const auto before = std::count_if(held.begin(), held.end(), [&](const SlotMeta& other) {
        return other.modality != Modality::kText && other.frame() == held[i - 1].frame();
      });
      time += std::min(StepsOf(m), static_cast<int32_t>(before));
    }
    piece.end = i + 1;
    piece.times.push_back(time);
    piece.lines.insert(text ? 0 : m.row / ColumnsOf(m));
    piece.columns.insert(text ? 0 : m.row % ColumnsOf(m));
  }
  return out;
}

// Every coordinate counted from the definition: what comes before, and the held lines, columns and frames.
std::vector<Place> Naive(const std::vector<SlotMeta>& held) {
  std::vector<Place> out;
  int32_t begin = 0;
  for (const Piece& piece : PiecesOf(held)) {
    for (size_t i = piece.first; i < piece.end; ++i) {
      const SlotMeta& m = held[i];
      const bool text = m.modality == Modality::kText;
      const auto line = piece.lines.find(text ? 0 : m.row / ColumnsOf(m));
      const auto column = piece.columns.find(text ? 0 : m.row % ColumnsOf(m));
      out.push_back({begin + piece.times[i - piece.first],
                     begin + static_cast<int32_t>(std::distance(piece.lines.begin(), line)),
                     begin + static_cast<int32_t>(std::distance(piece.columns.begin(), column))});
    }
    begin += piece.size();
  }
  return out;
}

std::vector<Place> Held(const std::vector<SlotMeta>& slots) {
  const int64_t n = std::ssize(slots);
  std::vector<int32_t> pos(slots.size() * 4);
  HeldPositions(slots, &pos[slots.size() * 3], pos.data(), n);
  std::vector<Place> out;
  for (int64_t i = 0; i < n; ++i) out.push_back({pos[i], pos[n + i], pos[2 * n + i]});
  return out;
}

std::vector<SlotMeta> Some(const std::vector<SlotMeta>& all, double share, Rng* rng) {
  std::vector<SlotMeta> out;
  for (const SlotMeta& m : all) {
    if (rng->Uniform() < share) out.push_back(m);
  }
  return out;
}

TEST(Axes, WhatIsHeldIsWhatTheDefinitionSays) {
  Rng rng(3);
  for (const double share : {1.0, 0.9, 0.5, 0.2, 0.05}) {
    for (int i = 0; i < 40; ++i) {
      const std::vector<SlotMeta> held = Some(Stream(&rng, 120), share, &rng);
      if (held.empty()) continue;
      const std::vector<Place> places = Held(held);
      ASSERT_EQ(places, Naive(held)) << "share " << share << ", stream " << i;
      for (const Place& p : places) {
        EXPECT_LT(std::max({p.time, p.line, p.column}), std::ssize(held)) << "a table of as many positions as slots";
      }
    }
  }
}

// Nothing dropped: the positions of the stream, under both rules, in any chunks.
TEST(Axes, AnUnlimitedPotHasTheStreamsPositions) {
  Rng rng(4);
  for (int i = 0; i < 20; ++i) {
    const std::vector<SlotMeta> all = Stream(&rng, 90);
    const std::vector<Place> want = Held(all);
    int64_t shift = 0, time = 0, extent = 0;
    for (int64_t begin = 0; begin < std::ssize(all);) {
      int64_t end = begin + 1;
      while (end < std::ssize(all) && all[begin].modality != Modality::kText &&
             all[end].frame() == all[begin].frame()) {
        ++end;
      }
      const int64_t n = end - begin;
      const std::vector<SlotMeta> unit(all.begin() + begin, all.begin() + end);
      std::vector<int32_t> pos(static_cast<size_t>(3 * n));
      const bool goes_on = StepsOf(unit.front()) >= 0;
      time = goes_on ? time + StepsOf(unit.front()) : 0;
      extent = goes_on ? extent : 0;
      shift -= extent;
      StreamPositions(unit, shift, pos.data(), n, time);
      for (int64_t k = 0; k < n; ++k) {
        EXPECT_EQ((Place{pos[k], pos[n + k], pos[2 * n + k]}), want[begin + k]) << "token " << begin + k;
      }
      if (unit.front().modality != Modality::kText) {
        const int64_t columns = std::min<int64_t>(ColumnsOf(unit.front()), n);
        extent = std::max<int64_t>({extent, columns, LineOf(unit.back()) + 1, time + 1});
        shift += extent - n;
      }
      begin = end;
    }
  }
}

// A line closes up when no frame has a token in it, a frame when nothing of it is held; frames keep their distance in
// steps, but not more than the one before has tokens.
TEST(Axes, FramesOfAVideoStandBehindEachOther) {
  const auto frame = [](int64_t seq, int32_t steps, const std::vector<int>& rows, std::vector<SlotMeta>* to) {
    for (const int row : rows) {
      SlotMeta m;
      m.seq = seq + row;
      m.token_id = VisualId(3, steps);
      m.modality = Modality::kVideo;
      m.row = static_cast<uint16_t>(row);
      to->push_back(m);
    }
  };
  std::vector<SlotMeta> held;
  frame(0, -1, {0, 8}, &held);  // lines 0 and 2
  frame(9, 2, {1}, &held);      // line 0
  frame(27, 9, {6, 7}, &held);  // line 2; the frame before it is gone
  frame(36, -1, {0}, &held);    // another video
  EXPECT_EQ(Held(held), (std::vector<Place>{{0, 0, 0}, {0, 1, 2}, {2, 0, 1}, {3, 1, 0}, {3, 1, 1}, {4, 4, 4}}));
  SlotMeta word;
  word.seq = 20;
  word.token_id = 7;
  held.insert(held.begin() + 3, word);
  EXPECT_EQ(Held(held),
            (std::vector<Place>{{0, 0, 0}, {0, 1, 2}, {2, 0, 1}, {3, 3, 3}, {4, 4, 4}, {4, 4, 5}, {6, 6, 6}}))
      << "words part them";
}

// Attention of the newest rows over pots with holes.
class AxesAttentionTest : public ::testing::TestWithParam<Granularity> {
 protected:
  static constexpr int32_t kLayers = 2, kHeads = 4, kKvHeads = 2, kDim = 24, kSlots = 96;
  static AttentionLayout Layout() {
    AttentionLayout layout;
    layout.n_layers = kLayers;
    layout.n_heads = kHeads;
    layout.n_kv_heads = kKvHeads;
    layout.head_dim = kDim;
    layout.scale = 0.4f;
    layout.rope.n_rot = kDim;
    layout.axis_pairs = {{3, 4, 5}};
    return layout;
  }
  static std::vector<float> Noise(int64_t n, Rng* rng) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = static_cast<float>(rng->Uniform() * 2 - 1);
    return out;
  }
  // x rotated by its place.
  static std::vector<double> Rotated(const float* x, const Place& place) {
    std::vector<double> out(x, x + kDim);
    for (int pair = 0; pair < kDim / 2; ++pair) {
      const int32_t at = pair < 3 ? place.time : pair < 7 ? place.line : place.column;
      const double angle = at * std::pow(10000.0, -2.0 * pair / kDim);
      out[pair] = x[pair] * std::cos(angle) - x[pair + kDim / 2] * std::sin(angle);
      out[pair + kDim / 2] = x[pair + kDim / 2] * std::cos(angle) + x[pair] * std::sin(angle);
    }
    return out;
  }
};

TEST_P(AxesAttentionTest, EqualsANaiveSum) {
  for (const bool simd : {false, true}) {
    for (const bool vote : {false, true}) {
      if (vote && GetParam() == Granularity::kGlobal) continue;  // statistics are a layer's or a head's
      Rng rng(5);
      Ledger ledger;
      auto backend = simd ? MakeCpuBackend(2) : MakeRefBackend();
      auto attender = std::move(Attender::Make(*backend, Layout(), 64, kSlots, kSlots, vote, ledger)).value();
      PotShape shape;
      shape.n_layers = kLayers;
      shape.n_kv_heads = kKvHeads;
      shape.head_dim = kDim;
      shape.n_slots = kSlots;
      shape.k_type = shape.v_type = DType::kF32;
      shape.granularity = GetParam();
      if (vote) shape.floats = {SlotFloat::kScore};
      auto pot = std::move(Pot::Make(shape, *backend, ledger)).value();
      std::vector<SlotMeta> all = Stream(&rng, 60);
      all.resize(64);
      for (size_t i = 60; i < 64; ++i) all[i] = {static_cast<int64_t>(i), 0, 5};
      const auto read = [&](size_t from, size_t n, std::vector<std::vector<float>>* q,
                            std::vector<std::vector<float>>* out, const EvidenceCall* evidence) {
        BatchSegment segment = {pot.get(), 0, static_cast<int64_t>(n), all[from].seq, evidence};
        segment.tokens = &all[from];
        ASSERT_TRUE(attender->Plan({&segment, 1}).ok());
        ASSERT_TRUE(pot->BeginAppend({&all[from], n}).ok());
        for (int32_t layer = 0; layer < kLayers; ++layer) {
          q->push_back(Noise(static_cast<int64_t>(n) * kHeads * kDim, &rng));
          const auto k = Noise(static_cast<int64_t>(n) * kKvHeads * kDim, &rng), v = Noise(std::ssize(k), &rng);
          out->emplace_back(q->back().size());
          attender->Attend(layer, q->back().data(), k.data(), v.data(), out->back().data());
        }
      };
      std::vector<std::vector<float>> q, out;
      read(0, 60, &q, &out, nullptr);
      for (int32_t group = 0; group < shape.n_groups(); ++group) {
        KeepSet keep;
        for (int32_t s = 0; s < 60; ++s) {
          if (rng.Uniform() < 0.5) keep.push_back(s);
        }
        ASSERT_TRUE(pot->Compact(group, keep).ok());
      }
      q.clear();
      out.clear();
      const EvidenceCall evidence = {1, 4, RowReduce::kSum, HeadReduce::kMean, false};
      read(60, 4, &q, &out, vote ? &evidence : nullptr);
      for (int32_t layer = 0; layer < kLayers; ++layer) {
        for (int32_t head = 0; head < kHeads; ++head) {
          const int32_t kv = head / (kHeads / kKvHeads), n = pot->n_used(layer, kv);
          const auto meta = pot->meta(shape.group_of(layer, kv));
          const std::vector<Place> places = Naive(std::vector<SlotMeta>(meta.begin(), meta.end()));
          const float* keys = reinterpret_cast<const float*>(pot->keys(layer, kv));
          const float* values = reinterpret_cast<const float*>(pot->values(layer, kv));
          for (int32_t row = 0; row < 4; ++row) {
            const std::vector<double> query =
                Rotated(&q[layer][static_cast<size_t>((row * kHeads + head) * kDim)], places[n - 4 + row]);
            std::vector<double> want(kDim);
            double total = 0;
            for (int32_t s = 0; s <= n - 4 + row; ++s) {
              const std::vector<double> key = Rotated(keys + s * kDim, places[s]);
              double z = 0;
              for (int i = 0; i < kDim; ++i) z += key[i] * query[i];
              const double w = std::exp(z * 0.4f);
              total += w;
              for (int i = 0; i < kDim; ++i) want[i] += w * values[s * kDim + i];
            }
            for (int i = 0; i < kDim; ++i) {
              EXPECT_NEAR(out[layer][static_cast<size_t>((row * kHeads + head) * kDim + i)], want[i] / total, 2e-5)
                  << (simd ? "cpu" : "ref") << " layer " << layer << " head " << head << " row " << row;
            }
          }
        }
        if (!vote) continue;
        // The last three rows voted: each gave all of its attention to the slots.
        for (int32_t kv = 0; kv < kKvHeads; ++kv) {
          double sum = 0;
          for (const float score : pot->scores(shape.group_of(layer, kv))) sum += score;
          EXPECT_NEAR(sum, 3, 1e-4);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Granularity, AxesAttentionTest,
                         ::testing::Values(Granularity::kGlobal, Granularity::kPerLayer, Granularity::kPerHead),
                         [](const auto& info) {
                           return info.param == Granularity::kGlobal     ? "global"
                                  : info.param == Granularity::kPerLayer ? "layer"
                                                                         : "head";
                         });

}  // namespace
}  // namespace weir
