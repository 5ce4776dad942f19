// SPDX-License-Identifier: Apache-2.0
// Attention and its statistics on a device against the scalar reference, over random pots: both forms of keys, every
// slot type, ragged heads, windows, lists of slots, soft caps, several pots in a call.
#include <fmt/core.h>
#include <algorithm>
#include <numeric>

#include "gpu/devices.h"
#include "ops/attention.h"
#include "ops/column_scores.h"
#include "ops/kv_slots.h"

namespace weir::testing {
namespace {

struct Case {
  DType type = DType::kF16;
  int64_t n_heads = 4, n_kv = 2, dim = 64, n_rows = 3;
  int32_t n_slots = 100;
  int n_rot = 64;  // 0: no rotation
  bool rotated = false, ragged = false, window = false, selected = false;
  float softcap = 0;
  int n_segments = 1;
  bool sinks = false;
  bool two_way = false;
};

class AttentionTest : public DeviceTest {
 protected:
  // Everything of a case twice: arguments over the host's memory and over the device's.
  struct Both {
    std::vector<float> q, cos, sin, out, sinks;
    RopeTable rope;
    std::vector<std::vector<uint8_t>> slots;
    std::vector<const uint8_t*> k, v, device_k, device_v;
    std::vector<int32_t> n_slots, n_selected;
    std::vector<std::vector<int32_t>> first, selected;
    std::vector<const int32_t*> first_ptrs, selected_ptrs;
    std::vector<AttentionSegment> segments, device_segments;
    AttentionArgs host, device;
  };

  std::unique_ptr<Both> Make(const Case& c) {
    auto b = std::make_unique<Both>();
    const int64_t rows = c.n_rows * c.n_segments, width = c.n_heads * c.dim, views = c.n_segments * c.n_kv;
    RopeConfig config;
    config.n_rot = c.n_rot;
    config.attn_factor = 1.1;
    b->rope = std::move(RopeTable::Make(config, c.n_slots)).value();
    if (c.n_rot > 0) b->rope.device = Put(b->rope.Pack());
    b->q = cpu::Normals(rng_, rows * (width + 4));
    std::vector<int64_t> pos(static_cast<size_t>(rows));
    std::iota(pos.begin(), pos.end(), 1000);
    b->cos.resize(static_cast<size_t>(rows * c.n_rot / 2));
    b->sin.resize(b->cos.size());
    RopeAngles(b->rope, pos.data(), rows, b->cos.data(), b->sin.data());
    for (int64_t i = 0; i < views; ++i) {
      const int32_t n =
          c.n_slots - (c.ragged ? static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(c.n_slots - c.n_rows))) : 0);
      b->n_slots.push_back(n);
      for (int kv = 0; kv < 2; ++kv) {
        const std::vector<float> x = cpu::Normals(rng_, n * c.dim);
        b->slots.emplace_back(static_cast<size_t>(n * SlotBytes(c.type, c.dim)));
        ref::StoreSlots({x.data(), c.dim, n, c.dim, c.type, b->slots.back().data(), 0});
      }
      std::vector<int32_t> first, selected;
      for (int64_t r = 0; r < c.n_rows; ++r)
        first.push_back(static_cast<int32_t>(std::max<int64_t>(0, n - c.n_rows + r - 20)));
      for (int32_t s = 0; s < n; ++s) {
        if (s >= n - c.n_rows || rng_.Uniform() < 0.3) selected.push_back(s);
      }
      b->n_selected.push_back(static_cast<int32_t>(selected.size()));
      b->first.push_back(first);
      b->selected.push_back(selected);
    }
    for (int64_t i = 0; i < views; ++i) {
      b->k.push_back(b->slots[2 * i].data());
      b->v.push_back(b->slots[2 * i + 1].data());
      b->device_k.push_back(Put(b->slots[2 * i]));
      b->device_v.push_back(Put(b->slots[2 * i + 1]));
      b->first_ptrs.push_back(b->first[i].data());
      b->selected_ptrs.push_back(b->selected[i].data());
    }
    for (int s = 0; s < c.n_segments; ++s) {
      const int64_t at = s * c.n_kv;
      AttentionSegment segment = {s * c.n_rows, c.n_rows, &b->k[at], &b->v[at], &b->n_slots[at]};
      if (c.selected) segment.selected = &b->selected_ptrs[at], segment.n_selected = &b->n_selected[at];
      if (c.window) segment.first_slot = &b->first_ptrs[at];
      segment.two_way = c.two_way;
      b->segments.push_back(segment);
      segment.k = &b->device_k[at];
      segment.v = &b->device_v[at];
      b->device_segments.push_back(segment);
    }
    b->out.assign(static_cast<size_t>(rows * (width + 8)), NAN);
    AttentionArgs& a = b->host;
    a.n_heads = c.n_heads, a.n_kv_heads = c.n_kv, a.head_dim = c.dim;
    a.scale = 1 / std::sqrt(static_cast<float>(c.dim));
    a.softcap = c.softcap;
    // Some above every score, some below.
    for (int64_t h = 0; h < c.n_heads; ++h) b->sinks.push_back(static_cast<float>(h % 4) * 4 - 4);
    if (c.sinks) a.sinks = b->sinks.data();
    a.q = b->q.data(), a.q_stride = width + 4;
    a.out = b->out.data(), a.out_stride = width + 8;
    a.k_type = a.v_type = c.type;
    a.rope = c.n_rot > 0 ? &b->rope : nullptr;
    a.keys_rotated = c.rotated;
    a.row_cos = b->cos.data(), a.row_sin = b->sin.data();
    a.segments = b->segments;
    b->device = a;
    b->device.q = Put(b->q);
    if (c.sinks) b->device.sinks = Put(b->sinks);
    b->device.out = Poisoned(std::ssize(b->out));
    if (c.n_rot > 0) b->device.row_cos = Put(b->cos), b->device.row_sin = Put(b->sin);
    b->device.segments = b->device_segments;
    const AttentionShape shape = {c.n_heads, c.n_kv, c.dim, rows, c.n_slots};
    b->device.scratch = Scratch(backend_->AttentionWithScoresScratchBytes(shape));
    return b;
  }

  // Many rows meet the half matrix units, which round queries, keys, values and weights.
  static bool Halves(const Case& c) {
    return c.type != DType::kF32 && (c.dim == 64 || c.dim == 128) && c.n_rows * (c.n_heads / c.n_kv) >= 64;
  }

  void Check(const Case& c) {
    SCOPED_TRACE(fmt::format(
        "{}, {} heads, {} KV heads of {}, {} rows, {} slots, rotation {}{}{}{}{}{}{}, cap {:g}, {} pots",
        InfoOf(c.type).name, c.n_heads, c.n_kv, c.dim, c.n_rows, c.n_slots, c.n_rot, c.rotated ? " done" : "",
        c.ragged ? ", ragged" : "", c.window ? ", window" : "", c.selected ? ", selected" : "",
        c.sinks ? ", sinks" : "", c.two_way ? ", two-way" : "", c.softcap, c.n_segments));
    const auto b = Make(c);
    ref_->Attention(b->host);
    backend_->Attention(b->device);
    const std::vector<float> got = Get(b->device.out, std::ssize(b->out));
    std::vector<float> a, e;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(b->out[i])) << i;  // between the rows nothing is written
      if (std::isnan(got[i])) continue;
      a.push_back(got[i]);
      e.push_back(b->out[i]);
    }
    EXPECT_LT(Distance(a, e), Halves(c) ? 1e-3 : 1e-5);
  }

  Rng rng_{9};
};

TEST_P(AttentionTest, BothFormsOfKeysInEveryType) {
  for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    for (const bool rotated : {false, true}) {
      for (const int64_t n_rows : {1, 20}) Check({.type = type, .n_rows = n_rows, .rotated = rotated});
    }
  }
}

TEST_P(AttentionTest, Shapes) {
  Check({.n_heads = 6, .n_kv = 6, .dim = 80, .n_rows = 1, .n_slots = 1, .n_rot = 20});
  Check({.n_heads = 8, .n_kv = 1, .dim = 96, .n_rows = 33, .n_slots = 33, .n_rot = 96});
  Check({.n_heads = 3, .n_kv = 3, .dim = 10, .n_rows = 2, .n_slots = 40, .n_rot = 0});
  Check({.n_heads = 2, .n_kv = 1, .dim = 512, .n_rows = 9, .n_slots = 70, .n_rot = 512});
  Check({.n_heads = 40, .n_kv = 2, .dim = 32, .n_rows = 1, .n_slots = 300, .n_rot = 32});
  Check({.n_heads = 80, .n_kv = 80, .dim = 32, .n_rows = 2, .n_slots = 50, .n_rot = 32});
  Check({.n_rows = 1, .n_slots = 2000});  // several parts of one row
}

TEST_P(AttentionTest, WindowsListsCapsAndPots) {
  Check({.n_rows = 5, .ragged = true, .n_segments = 3});
  Check({.n_rows = 40, .n_slots = 150, .window = true});
  Check({.n_rows = 1, .n_slots = 700, .window = true});
  Check({.n_rows = 4, .n_slots = 300, .ragged = true, .selected = true});
  Check({.n_rows = 1, .n_slots = 900, .rotated = true, .selected = true, .n_segments = 2});
  Check({.n_rows = 6, .n_slots = 90, .window = true, .selected = true});
  Check({.n_rows = 18, .softcap = 2});
  Check({.n_rows = 1, .n_slots = 700, .sinks = true});  // several splits, one of which has the sink
  Check({.n_rows = 7, .n_slots = 90, .window = true, .sinks = true});
  Check({.n_rows = 5, .n_slots = 90, .two_way = true});
}

TEST_P(AttentionTest, ManyRows) {
  Check({.n_rows = 32, .n_slots = 200});
  Check({.n_rows = 33, .n_slots = 131, .rotated = true, .ragged = true});
  Check({.type = DType::kQ8_0, .n_heads = 2, .n_kv = 2, .dim = 128, .n_rows = 70, .n_slots = 70, .n_rot = 96});
  Check({.n_heads = 6, .n_kv = 2, .n_rows = 45, .n_slots = 150, .window = true, .softcap = 2});
  Check({.n_rows = 40, .n_slots = 300, .selected = true, .n_segments = 2});
  Check({.n_rows = 45, .n_slots = 150, .window = true, .sinks = true});
  Check({.n_heads = 8, .n_kv = 1, .dim = 128, .n_rows = 9, .n_slots = 64, .n_rot = 0});
  Check({.n_heads = 2, .n_kv = 1, .n_rows = 70, .n_slots = 700, .sinks = true});  // two splits
  Check({.n_rows = 40, .n_slots = 300, .window = true, .selected = true});
  Check({.n_rows = 40, .n_slots = 150, .window = true, .two_way = true});
  Check({.type = DType::kQ8_0, .n_rows = 32, .n_slots = 90, .n_rot = 20});  // pairs that are not multiples of eight
  Check({.n_heads = 66, .n_kv = 66, .n_rows = 64, .n_slots = 64, .rotated = true});  // two launches
}

struct Vote {
  int64_t row_begin = 2, row_end = 12;
  RowReduce rows = RowReduce::kSum;
  HeadReduce heads = HeadReduce::kMean;
  bool all_heads = false, accumulate = false, fused = false;
};

class ColumnScoresTest : public AttentionTest {
 protected:
  // The statistics of a case's last pot.
  void CheckScores(const Case& c, const Vote& vote) {
    const auto b = Make(c);
    ColumnScoresArgs host;
    host.attention = b->host;
    host.attention.segments = {&b->segments.back(), 1};
    host.row_begin = vote.row_begin, host.row_end = vote.row_end;
    host.rows = vote.rows;
    host.heads = vote.heads;
    host.all_heads = vote.all_heads;
    host.accumulate = vote.accumulate;
    host.weight = vote.rows == RowReduce::kMax ? 1.0f : 0.5f;
    ColumnScoresArgs device = host;
    device.attention = b->device;
    device.attention.segments = {&b->device_segments.back(), 1};
    device.scratch = b->device.scratch;
    const int64_t n_out = vote.all_heads ? 1 : c.n_kv;
    std::vector<std::vector<float>> out;
    std::vector<float*> host_out, device_out;
    for (int64_t j = 0; j < n_out; ++j) out.push_back(cpu::Normals(rng_, c.n_slots));
    for (auto& o : out) {
      for (float& value : o) value = std::fabs(value);
      device_out.push_back(Put(o, Access::kShared));
      host_out.push_back(o.data());
    }
    host.out = host_out.data();
    device.out = device_out.data();
    ref_->ColumnScores(host);
    if (vote.fused) {
      backend_->AttentionWithScores(b->device, {&device, 1});
    } else {
      backend_->ColumnScores(device);
    }
    // Whoever attended with halves votes with them.
    Case voters = c;
    if (!vote.fused) voters.n_rows = vote.row_end - vote.row_begin;
    for (int64_t j = 0; j < n_out; ++j) {
      EXPECT_LT(Distance(Get(device_out[j], c.n_slots), out[j]), Halves(voters) ? 1e-3 : 1e-5)
          << vote.all_heads << static_cast<int>(vote.rows) << static_cast<int>(vote.heads) << vote.fused;
    }
  }
};

TEST_P(ColumnScoresTest, EveryReduction) {
  for (const bool all_heads : {false, true}) {
    for (const RowReduce rows : {RowReduce::kSum, RowReduce::kMax}) {
      for (const HeadReduce heads : {HeadReduce::kMean, HeadReduce::kMax, HeadReduce::kSum}) {
        for (const bool fused : {false, true}) {
          const Vote vote = {.rows = rows, .heads = heads, .all_heads = all_heads, .accumulate = fused, .fused = fused};
          const float cap = rows == RowReduce::kMax ? 3.0f : 0.0f;
          const bool window = heads == HeadReduce::kMax;
          CheckScores({.n_heads = 6,
                       .n_kv = 3,
                       .dim = 32,
                       .n_rows = 13,
                       .n_slots = 77,
                       .n_rot = 16,
                       .ragged = !all_heads,
                       .window = window,
                       .softcap = cap,
                       .n_segments = fused ? 2 : 1,
                       .sinks = all_heads},
                      vote);
          CheckScores({.type = window ? DType::kQ8_0 : DType::kF16,
                       .n_heads = 4,
                       .n_kv = 2,
                       .n_rows = 45,
                       .n_slots = 200,
                       .ragged = !all_heads,
                       .window = window,
                       .softcap = cap,
                       .n_segments = fused ? 2 : 1,
                       .sinks = all_heads},
                      {.row_begin = 3,
                       .row_end = 44,
                       .rows = rows,
                       .heads = heads,
                       .all_heads = all_heads,
                       .accumulate = fused,
                       .fused = fused});
        }
      }
    }
  }
}

TEST_P(ColumnScoresTest, OneRow) {
  CheckScores({.n_rows = 1, .n_slots = 900}, {.row_begin = 0, .row_end = 1, .fused = true});
  CheckScores({.dim = 128, .n_rows = 40, .n_slots = 100, .n_rot = 128},
              {.row_begin = 39, .row_end = 40, .fused = true});
}

// The scratch holds the scores of 16 of the rows.
TEST_P(ColumnScoresTest, RowsBeyondTheScratch) {
  for (const RowReduce rows : {RowReduce::kSum, RowReduce::kMax}) {
    CheckScores({.type = DType::kF32, .n_heads = 4, .n_kv = 4, .dim = 2, .n_rows = 19, .n_slots = 16384, .n_rot = 0},
                {.row_begin = 1, .row_end = 19, .rows = rows, .fused = true});
  }
}

WEIR_ON_DEVICES(AttentionTest);
WEIR_ON_DEVICES(ColumnScoresTest);

}  // namespace
}  // namespace weir::testing
