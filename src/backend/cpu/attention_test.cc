// The CPU attention kernels against the scalar reference, on every SIMD target this machine has, with several pools.
#include "backend/cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#define HWY_WANT_AVX3_DL
#include "hwy/highway.h"
#include "ops/kv_slots.h"

namespace weir {
namespace {

// Runs fn(target name) with dispatch forced to each target in turn.
template <typename F>
void ForEachTarget(const F& fn) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    fn(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    if (testing::Test::HasFatalFailure()) return;
  }
}

struct SegmentShape {
  int64_t n_rows;
  std::vector<int32_t> n_slots;  // one per KV head
};

enum class Keys { kPlain, kUnrotated, kRotated };

struct Shape {
  int64_t n_heads = 4, n_kv_heads = 2, head_dim = 64;
  int n_rot = 64;
  Keys keys = Keys::kUnrotated;
  DType k_type = DType::kF16, v_type = DType::kF16;
  std::vector<SegmentShape> segments;
  float q_size = 1, softcap = 0;
  bool equal_scores = false;
  double selected = 0;  // share of the slots that may be read, drawn; 0: no list at all
  int32_t window = 0;  // slots a row sees at most, give or take what is drawn; 0: all of them

  std::string Name() const {
    std::string s = InfoOf(k_type).name + std::string("/") + InfoOf(v_type).name;
    s += " heads " + std::to_string(n_heads) + "/" + std::to_string(n_kv_heads) + " dim " + std::to_string(head_dim) +
         " rot " + std::to_string(n_rot) + " keys " + std::to_string(static_cast<int>(keys)) + " selected " +
         std::to_string(selected) + " window " + std::to_string(window) + " cap " + std::to_string(softcap) + ":";
    for (const SegmentShape& segment : segments) {
      s += " " + std::to_string(segment.n_rows) + " of";
      for (int32_t n : segment.n_slots) s += " " + std::to_string(n);
      s += ";";
    }
    return s;
  }
};

// A call with all its memory. Slot arrays end exactly at their last slot and start at odd addresses; the gaps between
// rows of q hold NaN; out is poisoned before every run.
class Call {
 public:
  Call(const Shape& shape, uint32_t seed) : shape_(shape), rng_(seed) {
    int32_t max_slots = 1;
    for (const SegmentShape& segment : shape.segments) {
      for (int32_t n : segment.n_slots) max_slots = std::max(max_slots, n);
      n_rows_ += segment.n_rows;
    }
    max_slots_ = max_slots;
    RopeConfig config;
    config.n_rot = shape.keys == Keys::kPlain ? 0 : shape.n_rot;
    config.attn_factor = 1.05;
    rope_ = RopeTable::Make(config, max_slots).value();

    q_.assign(n_rows_ * QStride(), NAN);
    for (int64_t r = 0; r < n_rows_; ++r) {
      for (int64_t i = 0; i < shape.n_heads * shape.head_dim; ++i) {
        q_[r * QStride() + i] = shape.equal_scores ? 0 : Normal() * shape.q_size;
      }
    }
    for (const SegmentShape& segment : shape.segments) {
      for (int64_t h = 0; h < shape.n_kv_heads; ++h) {
        k_.push_back(Slots(shape.k_type, segment.n_slots[h]));
        v_.push_back(Slots(shape.v_type, segment.n_slots[h]));
      }
    }
    for (const auto& bytes : k_) k_ptrs_.push_back(bytes.data() + 1);
    for (const auto& bytes : v_) v_ptrs_.push_back(bytes.data() + 1);
    int64_t row = 0;
    for (size_t i = 0; i < shape.segments.size(); ++i) {
      const SegmentShape& segment = shape_.segments[i];
      segments_.push_back({row, segment.n_rows, &k_ptrs_[i * shape.n_kv_heads], &v_ptrs_[i * shape.n_kv_heads],
                           segment.n_slots.data()});
      row += segment.n_rows;
      for (int32_t n : segment.n_slots) first_slots_.push_back(FirstSlots(segment.n_rows, n));
    }
    for (const auto& first : first_slots_) first_ptrs_.push_back(first.data());
    for (size_t i = 0; shape.window > 0 && i < segments_.size(); ++i) {
      segments_[i].first_slot = &first_ptrs_[i * shape.n_kv_heads];
    }
    for (const SegmentShape& segment : shape.segments) {
      for (int32_t n : segment.n_slots) lists_.push_back(Selected(segment.n_rows, n));
    }
    for (const auto& list : lists_) {
      list_ptrs_.push_back(list.data());
      list_sizes_.push_back(static_cast<int32_t>(list.size()));
    }
    for (size_t i = 0; shape.selected > 0 && i < segments_.size(); ++i) {
      segments_[i].selected = &list_ptrs_[i * shape.n_kv_heads];
      segments_[i].n_selected = &list_sizes_[i * shape.n_kv_heads];
    }
    if (shape.keys == Keys::kRotated) {
      std::vector<int64_t> pos(n_rows_);
      for (int64_t& p : pos) p = std::uniform_int_distribution<int64_t>(0, 1'000'000)(rng_);
      cos_.resize(n_rows_ * rope_.n_rot / 2);
      sin_.resize(cos_.size());
      RopeAngles(rope_, pos.data(), n_rows_, cos_.data(), sin_.data());
    }
  }

  int64_t QStride() const { return shape_.n_heads * shape_.head_dim + 3; }
  int64_t OutStride() const { return shape_.n_heads * shape_.head_dim + 5; }
  float Normal() { return std::normal_distribution<float>()(rng_); }

  AttentionArgs Args(float* out) {
    AttentionArgs args;
    args.n_heads = shape_.n_heads;
    args.n_kv_heads = shape_.n_kv_heads;
    args.head_dim = shape_.head_dim;
    args.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    args.softcap = shape_.softcap;
    args.q = q_.data();
    args.q_stride = QStride();
    args.out = out;
    args.out_stride = OutStride();
    args.k_type = shape_.k_type;
    args.v_type = shape_.v_type;
    args.rope = shape_.keys == Keys::kPlain ? nullptr : &rope_;
    args.keys_rotated = shape_.keys == Keys::kRotated;
    args.row_cos = cos_.data();
    args.row_sin = sin_.data();
    args.segments = segments_;
    return args;
  }

  std::vector<float> Reference() {
    std::vector<float> out(n_rows_ * OutStride(), NAN);
    ref::Attention(Args(out.data()));
    return out;
  }

  std::vector<float> Run(ThreadPool& pool) {
    const AttentionShape shape = {shape_.n_heads, shape_.n_kv_heads, shape_.head_dim, n_rows_, max_slots_};
    const int64_t bytes = cpu::AttentionScratchBytes(shape, pool.n_threads());
    constexpr int64_t kGuard = 64;
    std::vector<uint8_t> memory(bytes + kGuard + 64, 0xff);  // NaN everywhere
    uint8_t* scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    std::vector<float> out(n_rows_ * OutStride(), NAN);
    AttentionArgs args = Args(out.data());
    args.scratch = scratch;
    cpu::Attention(args, pool);
    for (int64_t i = 0; i < kGuard; ++i) EXPECT_EQ(scratch[bytes + i], 0xff) << "wrote past the scratch";
    return out;
  }

  // Slots that no row may read, of segment i and head h.
  std::vector<int32_t> Unlisted(size_t i, int64_t h) const {
    const std::vector<int32_t>& list = lists_[i * shape_.n_kv_heads + h];
    std::vector<int32_t> out;
    for (int32_t s = 0; s < shape_.segments[i].n_slots[h]; ++s) {
      if (!std::binary_search(list.begin(), list.end(), s)) out.push_back(s);
    }
    return out;
  }
  // Overwrites them with NaN, or all bits set.
  void Poison() {
    for (size_t i = 0; i < shape_.segments.size(); ++i) {
      for (int64_t h = 0; h < shape_.n_kv_heads; ++h) {
        for (int32_t s : Unlisted(i, h)) {
          const int64_t k_bytes = SlotBytes(shape_.k_type, shape_.head_dim),
                        v_bytes = SlotBytes(shape_.v_type, shape_.head_dim);
          std::memset(k_[i * shape_.n_kv_heads + h].data() + 1 + s * k_bytes, 0xff, static_cast<size_t>(k_bytes));
          std::memset(v_[i * shape_.n_kv_heads + h].data() + 1 + s * v_bytes, 0xff, static_cast<size_t>(v_bytes));
        }
      }
    }
  }

 private:
  // Some of the old slots and all new ones.
  std::vector<int32_t> Selected(int64_t n_rows, int32_t n_slots) {
    std::vector<int32_t> out;
    for (int32_t s = 0; s < n_slots; ++s) {
      if (s >= n_slots - n_rows || std::uniform_real_distribution<double>()(rng_) < shape_.selected) out.push_back(s);
    }
    return out;
  }

  // Windows that move by nothing, one or some slots a row and may end at the row's own slot.
  std::vector<int32_t> FirstSlots(int64_t n_rows, int32_t n_slots) {
    std::vector<int32_t> out(n_rows);
    int32_t first = 0;
    for (int64_t i = 0; i < n_rows; ++i) {
      const int32_t own = static_cast<int32_t>(n_slots - n_rows + i);
      const int32_t drawn = own - shape_.window + std::uniform_int_distribution<int32_t>(0, 3)(rng_);
      out[i] = first = std::clamp(drawn, first, own);
    }
    return out;
  }

  std::vector<uint8_t> Slots(DType type, int64_t n) {
    std::vector<float> x(shape_.head_dim);
    std::vector<uint8_t> bytes(1 + n * SlotBytes(type, shape_.head_dim));
    for (int64_t s = 0; s < n; ++s) {
      for (float& v : x) v = Normal();
      StoreSlotsArgs args;
      args.x = x.data();
      args.n_rows = 1;
      args.head_dim = shape_.head_dim;
      args.type = type;
      args.slots = bytes.data() + 1;
      args.first_slot = s;
      ref::StoreSlots(args);
    }
    return bytes;
  }

  const Shape shape_;
  std::mt19937 rng_;
  int64_t n_rows_ = 0, max_slots_ = 0;
  RopeTable rope_;
  std::vector<float> q_, cos_, sin_;
  std::vector<std::vector<uint8_t>> k_, v_;
  std::vector<const uint8_t*> k_ptrs_, v_ptrs_;
  std::vector<AttentionSegment> segments_;
  std::vector<std::vector<int32_t>> lists_;
  std::vector<const int32_t*> list_ptrs_;
  std::vector<int32_t> list_sizes_;
  std::vector<std::vector<int32_t>> first_slots_;
  std::vector<const int32_t*> first_ptrs_;
};

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected, float tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  float worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    // Gaps between rows stay as they were.
    ASSERT_EQ(std::isnan(got[i]), std::isnan(expected[i])) << i;
    if (!std::isnan(expected[i])) worst = std::max(worst, std::fabs(got[i] - expected[i]));
  }
  EXPECT_LE(worst, tolerance);
}

void ExpectSameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

// Every target against the reference; one, two and three threads against each other.
void Check(const Shape& shape, uint32_t seed, float tolerance = 1e-5f) {
  SCOPED_TRACE(shape.Name());
  static ThreadPool one(1), two(2), three(3);
  Call call(shape, seed);
  const std::vector<float> expected = call.Reference();
  ForEachTarget([&](const char*) {
    const std::vector<float> out = call.Run(one);
    ExpectNear(out, expected, tolerance);
    ExpectSameBytes(out, call.Run(two));
    ExpectSameBytes(out, call.Run(three));
  });
}

// Rounding differs between the widest and the plainest target (fused products, order of sums): equal bytes would mean
// that the tests below run one target many times.
TEST(CpuAttention, TargetsAreReallyForced) {
  Shape shape;
  shape.segments = {{1, {300, 200}}, {20, {300, 200}}};
  Call call(shape, 1);
  ThreadPool pool(1);
  std::vector<std::vector<float>> outs;
  ForEachTarget([&](const char*) { outs.push_back(call.Run(pool)); });
  if (outs.size() == 1) GTEST_SKIP() << "this machine has one SIMD target only";
  EXPECT_NE(std::memcmp(outs.front().data(), outs.back().data(), outs.front().size() * sizeof(float)), 0);
}

TEST(CpuAttention, EveryHeadSizeAndForm) {
  uint32_t seed = 1;
  for (int64_t dim : {16, 64, 80, 96, 128, 256}) {
    for (int n_rot : {8, static_cast<int>(dim / 4), static_cast<int>(dim)}) {
      for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
        Shape shape;
        shape.head_dim = dim;
        shape.n_rot = n_rot;
        shape.keys = keys;
        shape.segments = {{1, {67, 130}}, {21, {90, 21}}};
        Check(shape, seed++);
      }
    }
  }
}

TEST(CpuAttention, EveryStorageType) {
  uint32_t seed = 100;
  for (DType k_type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    for (DType v_type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
      Shape shape;
      shape.k_type = k_type;
      shape.v_type = v_type;
      shape.n_heads = 6;
      shape.segments = {{1, {300, 513}}, {40, {150, 97}}};
      Check(shape, seed++);
    }
  }
}

// All sizes of a group: 1 to 8 and more query heads a key, one to a few rows.
TEST(CpuAttention, EveryGroupSize) {
  uint32_t seed = 200;
  for (int64_t group = 1; group <= 9; ++group) {
    for (int64_t n_rows : {1, 2, 3}) {
      Shape shape;
      shape.n_kv_heads = 1;
      shape.n_heads = group;
      shape.head_dim = 32;
      shape.n_rot = 32;
      shape.segments = {{n_rows, {static_cast<int32_t>(256 + n_rows)}}};
      Check(shape, seed++);
    }
  }
}

// Lists of slots, dense and thin, for few and for many rows; what is not listed holds what would be seen.
TEST(CpuAttention, SelectedSlotsOnly) {
  static ThreadPool one(1), three(3);
  uint32_t seed = 270;
  for (double selected : {0.001, 0.02, 0.3, 0.97, 1.0}) {
    for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
      for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
        Shape shape;
        shape.head_dim = seed % 2 ? 64 : 96;
        shape.n_rot = seed % 3 ? 64 : 24;
        shape.n_heads = seed % 5 ? 4 : 6;
        shape.keys = keys;
        shape.k_type = shape.v_type = type;
        shape.selected = selected;
        shape.segments = {{1, {1000, 1}}, {3, {700, 300}}, {1, {33, 257}}, {70, {500, 80}}};
        SCOPED_TRACE(shape.Name());
        Call call(shape, seed++);
        const std::vector<float> expected = call.Reference();
        call.Poison();
        ForEachTarget([&](const char*) {
          const std::vector<float> out = call.Run(one);
          ExpectNear(out, expected, 1e-5f);
          ExpectSameBytes(out, call.Run(three));
        });
        if (HasFailure()) return;
      }
    }
  }
}

// Windows that begin inside, at the edges of and whole tiles and blocks before the first slot they hide.
TEST(CpuAttention, EveryWindowAndCap) {
  uint32_t seed = 250;
  for (int32_t window : {0, 1, 5, 31, 64, 100, 256, 700}) {
    for (float softcap : {0.0f, 1.5f, 50.0f}) {
      Shape shape;
      shape.head_dim = 32;
      shape.n_rot = 32;
      shape.keys = static_cast<Keys>(seed % 3);
      shape.window = window;
      shape.softcap = softcap;
      shape.q_size = softcap > 1 ? 20 : 2;
      shape.segments = {{1, {600, 130}}, {3, {1000, 257}}, {70, {700, 70}}, {200, {500, 333}}};
      Check(shape, seed++, softcap > 1 ? 1e-4f : 1e-5f);  // scores near 72 have 24 bits
      if (HasFailure()) return;
    }
  }
}

// A list of everything is no list: the same bytes.
TEST(CpuAttention, ListsOfAllSlotsEqualNone) {
  ThreadPool pool(2);
  for (Keys keys : {Keys::kPlain, Keys::kUnrotated, Keys::kRotated}) {
    Shape dense;
    dense.keys = keys;
    dense.segments = {{1, {1000, 300}}, {40, {150, 97}}};
    Shape listed = dense;
    listed.selected = 2;
    Call a(dense, 290), b(listed, 290);
    ForEachTarget([&](const char*) { ExpectSameBytes(a.Run(pool), b.Run(pool)); });
  }
}

TEST(CpuAttention, RandomShapes) {
  std::mt19937 rng(7);
  const auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng); };
  for (uint32_t i = 0; i < 40; ++i) {
    Shape shape;
    shape.n_kv_heads = pick(1, 3);
    shape.n_heads = shape.n_kv_heads * pick(1, 5);
    shape.head_dim = 8 * pick(1, 12);
    shape.n_rot = static_cast<int>(2 * pick(1, shape.head_dim / 2));
    shape.keys = static_cast<Keys>(pick(0, 2));
    shape.k_type = shape.head_dim % 32 == 0 && pick(0, 1) ? DType::kQ8_0 : pick(0, 1) ? DType::kF16 : DType::kF32;
    shape.v_type = shape.head_dim % 32 == 0 && pick(0, 1) ? DType::kQ8_0 : pick(0, 1) ? DType::kF16 : DType::kF32;
    for (int64_t s = pick(1, 4); s > 0; --s) {
      SegmentShape segment;
      segment.n_rows = pick(0, 1) ? 1 : pick(1, 60);
      for (int64_t h = 0; h < shape.n_kv_heads; ++h) {
        segment.n_slots.push_back(static_cast<int32_t>(segment.n_rows + (pick(0, 1) ? pick(0, 10) : pick(0, 600))));
      }
      shape.segments.push_back(segment);
    }
    shape.window = static_cast<int32_t>(pick(0, 1) * pick(1, 300));
    shape.selected = pick(0, 2) == 0 ? 0.4 : 0;
    Check(shape, 300 + i);
    if (HasFailure()) return;
  }
}

// Ranges of more than one block, several rounds of workers, and more heads than one round takes.
TEST(CpuAttention, DeepAndWide) {
  Shape deep;
  deep.n_heads = 2;
  deep.n_kv_heads = 1;
  deep.head_dim = 16;
  deep.n_rot = 16;
  deep.segments = {{1, {20000}}};
  Check(deep, 400);
  Shape wide;
  wide.n_heads = 2;
  wide.head_dim = 8;
  wide.n_rot = 8;
  for (int i = 0; i < 150; ++i) wide.segments.push_back({1, {300 + i, 260}});
  Check(wide, 401);
}

TEST(CpuAttention, VeryLargeAndEqualScores) {
  for (int64_t n_rows : {1, 30}) {
    Shape shape;
    shape.k_type = shape.v_type = DType::kF32;
    shape.segments = {{n_rows, {400, 333}}};
    shape.q_size = 2000;
    // Scores of thousands leave F32 an absolute error of thousandths.
    Check(shape, 500, 2e-2f);
    shape.equal_scores = true;
    Check(shape, 501, 2e-6f);
  }
}

// The rows of one chunk, given in one call or one by one with the pot growing: same results within rounding.
TEST(CpuAttention, ChunkedEqualsWhole) {
  constexpr int64_t kDim = 64, kRows = 70;
  constexpr int32_t kSlots = 333;
  Shape shape;
  shape.n_kv_heads = 1;
  shape.n_heads = 3;
  shape.k_type = shape.v_type = DType::kF32;
  shape.segments = {{kRows, {kSlots}}};
  Call call(shape, 600);
  ThreadPool pool(2);
  const std::vector<float> whole = call.Run(pool);
  std::vector<float> parts(whole.size(), NAN);
  AttentionArgs args = call.Args(parts.data());
  const AttentionSegment all = args.segments[0];
  std::vector<uint8_t> memory(cpu::AttentionScratchBytes({3, 1, kDim, kRows, kSlots}, 2) + 64);
  args.scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  int64_t row = 0;
  for (int64_t n : {1, 2, 30, 1, 36}) {
    AttentionSegment segment = all;
    const int32_t n_slots = static_cast<int32_t>(kSlots - kRows + row + n);
    segment.first_row = row;
    segment.n_rows = n;
    segment.n_slots = &n_slots;
    args.segments = {&segment, 1};
    cpu::Attention(args, pool);
    row += n;
  }
  ASSERT_EQ(row, kRows);
  ExpectNear(parts, whole, 1e-5f);
}

}  // namespace
}  // namespace weir
