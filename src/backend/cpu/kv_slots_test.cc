// SPDX-License-Identifier: Apache-2.0
// The CPU slot operations: the reference's bytes on every SIMD target, and a long life of evictions.
#include "backend/cpu/kv_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/testing.h"

namespace weir {
namespace {

struct Store {
  DType type;
  int64_t n_heads, n_rows, head_dim;
  int n_rot;
};

// Values of many sizes, including hard cases for an encoder: zeros, halves, subnormals, infinities, NaN.
std::vector<float> HardFloats(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> kind(0, 40), exponent(-30, 20);
  std::vector<float> x(n);
  float size = 1;
  for (int64_t i = 0; i < n; ++i) {
    if (i % 64 == 0) size = std::ldexp(1.0f, exponent(rng));
    x[i] = normal(rng) * size;
    const int k = kind(rng);
    if (k == 0) x[i] = -0.0f;
    if (k == 1) x[i] = 0.5f * size;
    if (k == 2) x[i] = 127;
  }
  for (int64_t i = 0; i + 32 <= n; i += 32) {
    const int k = kind(rng);
    if (k == 0) std::fill_n(&x[i], 32, 0.0f);
    if (k == 1) std::fill_n(&x[i], 32, std::numeric_limits<float>::denorm_min());
    if (k == 2) x[i + 5] = std::numeric_limits<float>::infinity();
    if (k == 3) x[i + 31] = std::numeric_limits<float>::quiet_NaN();
    if (k == 4) std::fill_n(&x[i], 32, 1e-40f);
    if (k == 5) x[i] = 70000;
  }
  return x;
}

void CheckStore(const Store& shape) {
  SCOPED_TRACE(InfoOf(shape.type).name);
  RopeConfig config;
  config.n_rot = shape.n_rot;
  config.attn_factor = 1.3;
  const Result<RopeTable> rope = RopeTable::Make(config, 32);
  ASSERT_TRUE(rope.ok());
  std::vector<int64_t> pos(shape.n_rows);
  for (int64_t i = 0; i < shape.n_rows; ++i) pos[i] = 7 + 1000 * i;
  std::vector<float> cos(shape.n_rows * shape.n_rot / 2), sin(cos.size());
  RopeAngles(*rope, pos.data(), shape.n_rows, cos.data(), sin.data());
  const int64_t stride = shape.head_dim + 3;
  const std::vector<float> x = HardFloats(shape.n_heads * shape.n_rows * stride, 11);
  const int64_t slot_bytes = SlotBytes(shape.type, shape.head_dim);
  const int64_t array_bytes = (shape.n_rows + 3) * slot_bytes + 1;
  std::vector<uint8_t> expected(shape.n_heads * array_bytes, 0xaa);
  const auto args_for = [&](std::vector<uint8_t>& slots) {
    std::vector<StoreSlotsArgs> args(shape.n_heads);
    for (int64_t h = 0; h < shape.n_heads; ++h) {
      args[h].x = x.data() + h * shape.n_rows * stride;
      args[h].x_stride = stride;
      args[h].n_rows = shape.n_rows;
      args[h].head_dim = shape.head_dim;
      args[h].type = shape.type;
      args[h].slots = slots.data() + h * array_bytes + 1;
      args[h].first_slot = 2;
      args[h].rope = shape.n_rot > 0 ? &*rope : nullptr;
      args[h].cos = cos.data();
      args[h].sin = sin.data();
    }
    return args;
  };
  for (const StoreSlotsArgs& head : args_for(expected)) ref::StoreSlots(head);
  cpu::ForEachTarget([&] {
    for (int n_threads : {1, 2, 3}) {
      ThreadPool pool(n_threads);
      std::vector<uint8_t> slots(expected.size(), 0xaa);
      cpu::StoreSlots(args_for(slots), pool);
      ASSERT_EQ(std::memcmp(slots.data(), expected.data(), slots.size()), 0) << n_threads << " threads";
    }
  });
}

TEST(CpuKvSlots, StoresTheBytesOfTheReference) {
  for (DType type : kSlotTypes) {
    CheckStore({type, 2, 5, 64, 0});
    CheckStore({type, 2, 5, 64, 64});
    CheckStore({type, 3, 130, 96, 20});  // enough work for several workers
  }
  CheckStore({DType::kF16, 1, 3, 40, 22});
  CheckStore({DType::kF32, 1, 3, 8, 2});
  CheckStore({DType::kF16, 1, 2, 1024, 0});  // a head larger than any attention kernel accepts
}

TEST(CpuKvSlots, CompactsLikeTheReference) {
  std::mt19937 rng(3);
  for (int64_t slot_bytes : {1, 34, 136}) {
    for (int n_slots : {0, 1, 10, 3000}) {
      std::vector<std::vector<uint8_t>> expected, got[3];
      std::vector<std::vector<int32_t>> keep;
      for (int head = 0; head < 4; ++head) {
        std::vector<uint8_t> bytes(n_slots * slot_bytes);
        for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
        keep.emplace_back();
        for (int s = 0; s < n_slots; ++s) {
          if (rng() % 4 != 0 && !(head == 1 && s < 5)) keep.back().push_back(s);
        }
        expected.push_back(bytes);
        for (auto& g : got) g.push_back(bytes);
        ref::CompactSlots({expected.back().data(), slot_bytes, keep.back()});
      }
      for (int n_threads : {1, 2, 3}) {
        ThreadPool pool(n_threads);
        std::vector<CompactSlotsArgs> args;
        for (int head = 0; head < 4; ++head) {
          args.push_back({got[n_threads - 1][head].data(), slot_bytes, keep[head]});
        }
        cpu::CompactSlots(args, pool);
        for (int head = 0; head < 4; ++head) {
          const size_t kept_bytes = keep[head].size() * slot_bytes;
          ASSERT_TRUE(std::equal(expected[head].begin(), expected[head].begin() + kept_bytes,
                                 got[n_threads - 1][head].begin()));
        }
      }
    }
  }
}

// One head through 10,000 evictions. Keys are stored un-rotated, so nothing can drift: attention over the pot equals
// attention over the same vectors newly stored in F32, and kept slots keep their bytes.
TEST(CpuKvSlots, TenThousandEvictionsDoNotDrift) {
  constexpr int64_t kDim = 64, kPot = 192;
  constexpr int kRounds = 10000;
  RopeConfig config;
  config.n_rot = kDim;
  const Result<RopeTable> rope = RopeTable::Make(config, kPot);
  ASSERT_TRUE(rope.ok());
  const int64_t slot_bytes = SlotBytes(DType::kF16, kDim);
  std::vector<uint8_t> k(kPot * slot_bytes), v(kPot * slot_bytes);
  std::vector<std::vector<float>> fresh_k, fresh_v;  // what the slots were made from
  std::vector<std::vector<uint8_t>> stored_k;        // and their bytes when they were new
  ThreadPool pool(2);
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  const auto append = [&] {
    const int64_t slot = std::ssize(fresh_k);
    fresh_k.emplace_back(kDim);
    fresh_v.emplace_back(kDim);
    for (float& x : fresh_k.back()) x = normal(rng);
    for (float& x : fresh_v.back()) x = normal(rng);
    StoreSlotsArgs args[2];
    for (StoreSlotsArgs& a : args) {
      a.n_rows = 1;
      a.head_dim = kDim;
      a.first_slot = slot;
    }
    args[0].x = fresh_k.back().data();
    args[0].slots = k.data();
    args[1].x = fresh_v.back().data();
    args[1].slots = v.data();
    cpu::StoreSlots(args, pool);
    stored_k.emplace_back(k.begin() + slot * slot_bytes, k.begin() + (slot + 1) * slot_bytes);
  };
  for (int round = 0; round < kRounds; ++round) {
    while (std::ssize(fresh_k) < kPot) append();
    std::vector<int32_t> keep;
    const uint32_t drop_one_in = 3 + rng() % 30;
    for (int32_t s = 0; s < kPot; ++s) {
      if (rng() % drop_one_in != 0) keep.push_back(s);
    }
    if (std::ssize(keep) == kPot) keep.pop_back();
    const CompactSlotsArgs args[2] = {{k.data(), slot_bytes, keep}, {v.data(), slot_bytes, keep}};
    cpu::CompactSlots(args, pool);
    for (size_t j = 0; j < keep.size(); ++j) {
      std::swap(fresh_k[j], fresh_k[keep[j]]);
      std::swap(fresh_v[j], fresh_v[keep[j]]);
      std::swap(stored_k[j], stored_k[keep[j]]);
    }
    fresh_k.resize(keep.size());
    fresh_v.resize(keep.size());
    stored_k.resize(keep.size());
  }
  const int32_t n_slots = static_cast<int32_t>(fresh_k.size());
  for (int32_t s = 0; s < n_slots; ++s) {
    ASSERT_EQ(std::memcmp(&k[s * slot_bytes], stored_k[s].data(), slot_bytes), 0) << s;
  }

  std::vector<float> k32, v32;
  for (int32_t s = 0; s < n_slots; ++s) {
    k32.insert(k32.end(), fresh_k[s].begin(), fresh_k[s].end());
    v32.insert(v32.end(), fresh_v[s].begin(), fresh_v[s].end());
  }
  std::vector<float> q(2 * kDim), out(2 * kDim, NAN), expected(2 * kDim, NAN);
  for (float& x : q) x = normal(rng);
  const auto attend = [&](DType type, const void* keys, const void* values, float* to, bool reference) {
    const uint8_t* k_ptr = static_cast<const uint8_t*>(keys);
    const uint8_t* v_ptr = static_cast<const uint8_t*>(values);
    const AttentionSegment segment = {0, 1, &k_ptr, &v_ptr, &n_slots};
    AttentionArgs args;
    args.n_heads = 2;
    args.n_kv_heads = 1;
    args.head_dim = kDim;
    args.scale = 0.125f;
    args.q = q.data();
    args.q_stride = args.out_stride = 2 * kDim;
    args.out = to;
    args.k_type = args.v_type = type;
    args.rope = &*rope;
    args.segments = {&segment, 1};
    if (reference) return ref::Attention(args);
    std::vector<uint8_t> memory(cpu::AttentionScratchBytes({2, 1, kDim, 1, n_slots}, 2) + 64);
    args.scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    cpu::Attention(args, pool);
  };
  attend(DType::kF16, k.data(), v.data(), out.data(), false);
  attend(DType::kF32, k32.data(), v32.data(), expected.data(), true);
  double error = 0, size = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    error += (out[i] - expected[i]) * (out[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  EXPECT_LE(std::sqrt(error), 1e-3 * std::sqrt(size));
}

}  // namespace
}  // namespace weir
