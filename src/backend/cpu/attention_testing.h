// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the attention kernels: random calls with guarded memory, and the comparison of every SIMD
// target and pool with the scalar reference. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/testing.h"
#include "ops/kv_slots.h"

namespace weir::cpu::attention {

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
  bool equal_scores = false, bf16 = false;
  bool coarse = false;   // keys and values with few significant bits
  bool extreme = false;  // transformed keys and values: whole blocks of smallest or largest codes, and of both in turns
  double selected = 0;   // share of the slots that may be read, chosen at random; 0: no list
  bool sinks = false;
  int32_t window = 0;  // most slots that a row sees, plus or minus a random number; 0: all of them
  bool two_way = false;

  std::string Name() const {
    std::string s = InfoOf(k_type).name + std::string("/") + InfoOf(v_type).name;
    s += " heads " + std::to_string(n_heads) + "/" + std::to_string(n_kv_heads) + " dim " + std::to_string(head_dim) +
         " rot " + std::to_string(n_rot) + " keys " + std::to_string(static_cast<int>(keys)) + " selected " +
         std::to_string(selected) + " window " + std::to_string(window) + " cap " + std::to_string(softcap) +
         (sinks ? " sinks" : "") + (two_way ? " two ways" : "") + (bf16 ? " bf16" : "") + (coarse ? " coarse" : "") +
         (extreme ? " extreme:" : ":");
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

    // Some above every score, some below.
    for (int64_t h = 0; h < shape.n_heads; ++h) sinks_.push_back(static_cast<float>(h % 4) * 4 - 4);
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
      segments_.back().two_way = shape.two_way;
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
    args.sinks = shape_.sinks ? sinks_.data() : nullptr;
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
    args.bf16 = shape_.bf16;
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

  // Slots that no row of segment i and head h may read.
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

  // Windows that advance by zero, one or several slots per row and may end at the row's own slot.
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
      for (float& v : x) v = shape_.coarse ? std::round(Normal() * 4) / 4 : Normal();
      StoreSlotsArgs args;
      args.x = x.data();
      args.n_rows = 1;
      args.head_dim = shape_.head_dim;
      args.type = type;
      args.slots = bytes.data() + 1;
      args.first_slot = s;
      ref::StoreSlots(args);
    }
    if (shape_.extreme) SetExtremeCodes(type, &bytes);
    return bytes;
  }

  // In place of a block's codes, which are its last bytes, after one or two numbers of 16 bits.
  void SetExtremeCodes(DType type, std::vector<uint8_t>* slots) {
    const DTypeInfo& info = InfoOf(type);
    const int numbers = info.block_bytes > 2 + 4 + 16 || info.block_bytes == 2 + 2 + 16 ? 4 : 2;
    constexpr uint8_t kPatterns[] = {0x00, 0xff, 0x0f, 0xf0, 0xaa};
    for (size_t at = 1; at < slots->size(); at += info.block_bytes) {
      const uint32_t pattern = rng_() % 7;
      for (int i = numbers; i < info.block_bytes; ++i) {
        // The last kind differs by byte: sums of neighbours, or of elements 2, 4 or 8 apart, are the largest.
        const uint32_t odd = pattern == 5 ? i & 1 : (i >> 2) & 1;
        (*slots)[at + i] = pattern < 5 ? kPatterns[pattern] : odd != 0 ? 0xff : 0x00;
      }
    }
  }

  const Shape shape_;
  std::mt19937 rng_;
  int64_t n_rows_ = 0, max_slots_ = 0;
  RopeTable rope_;
  std::vector<float> q_, cos_, sin_, sinks_;
  std::vector<std::vector<uint8_t>> k_, v_;
  std::vector<const uint8_t*> k_ptrs_, v_ptrs_;
  std::vector<AttentionSegment> segments_;
  std::vector<std::vector<int32_t>> lists_;
  std::vector<const int32_t*> list_ptrs_;
  std::vector<int32_t> list_sizes_;
  std::vector<std::vector<int32_t>> first_slots_;
  std::vector<const int32_t*> first_ptrs_;
};

inline void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected, float tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  float worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    // Gaps between rows are unchanged.
    ASSERT_EQ(std::isnan(got[i]), std::isnan(expected[i])) << i;
    if (!std::isnan(expected[i])) worst = std::max(worst, std::fabs(got[i] - expected[i]));
  }
  EXPECT_LE(worst, tolerance);
}

// Root mean square of the differences, relative to that of the expected values.
inline double RelativeError(const std::vector<float>& got, const std::vector<float>& expected) {
  double errors = 0, squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) continue;
    errors += std::pow(got[i] - expected[i], 2);
    squares += std::pow(expected[i], 2);
  }
  return std::sqrt(errors / squares);
}

inline void ExpectSameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

// With transformed types, queries and weights may be rounded to 16 bits (attention_words-inl.h): an error of a score is
// then that of the product of a whole query and a whole key.
inline void ExpectNear(const Shape& shape, const std::vector<float>& got, const std::vector<float>& expected,
                       float tolerance = 1e-5f) {
  const bool rounded = IsTransformed(shape.k_type) || IsTransformed(shape.v_type);
  ExpectNear(got, expected, std::max(tolerance, rounded ? 1e-3f : 0.0f));
  if (rounded) EXPECT_LE(RelativeError(got, expected), 2e-4);
}

// Compares every target with the reference, and pools of one, two and three threads with each other.
inline void Check(const Shape& shape, uint32_t seed, float tolerance = 1e-5f) {
  SCOPED_TRACE(shape.Name());
  static ThreadPool one(1), two(2), three(3);
  Call call(shape, seed);
  const std::vector<float> expected = call.Reference();
  ForEachTarget([&] {
    const std::vector<float> out = call.Run(one);
    ExpectNear(shape, out, expected, tolerance);
    ExpectSameBytes(out, call.Run(two));
    ExpectSameBytes(out, call.Run(three));
  });
}

}  // namespace weir::cpu::attention
