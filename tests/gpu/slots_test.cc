// SPDX-License-Identifier: Apache-2.0
// Writing, moving and measuring slots on a device against the scalar reference: stored bytes are the same bytes.
#include <tuple>

#include "gpu/devices.h"
#include "ops/frame_novelty.h"
#include "ops/kv_slots.h"
#include "ops/scenes.h"

namespace weir::testing {
namespace {

class SlotsTest : public DeviceTest {
 protected:
  Rng rng_{7};
};

TEST_P(SlotsTest, StoredBytesAreTheReferences) {
  const int64_t dim = 96, n_rows = 5, n_slots = 20, heads = 60,
                stride = heads * dim;  // more heads than one launch takes
  RopeConfig config;
  config.n_rot = 64;
  config.attn_factor = 1.25;
  RopeTable rope = std::move(RopeTable::Make(config, 64)).value();
  rope.device = Put(rope.Pack());
  std::vector<float> x = cpu::Normals(rng_, n_rows * stride);
  x[3] = NAN, x[dim + 1] = INFINITY, x[2 * dim] = 1e-30f;
  std::fill_n(&x[stride], dim, 0.0f);
  std::vector<float> cos(n_rows * 32), sin(n_rows * 32);
  const std::vector<int64_t> pos = {7, 100, 3, 9, 11};
  RopeAngles(rope, pos.data(), n_rows, cos.data(), sin.data());
  const float *dx = Put(x), *dcos = Put(cos), *dsin = Put(sin);
  for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    const int64_t array = n_slots * SlotBytes(type, dim);
    std::vector<uint8_t> expected(static_cast<size_t>(heads * array), 0xee);
    uint8_t* slots = Put(expected);
    std::vector<StoreSlotsArgs> mine, reference;
    for (int64_t h = 0; h < heads; ++h) {
      StoreSlotsArgs args = {x.data() + h * dim, stride, n_rows, dim, type, expected.data() + h * array, 3 + h % 10};
      if (h % 2 == 1) args.rope = &rope, args.cos = cos.data(), args.sin = sin.data();
      reference.push_back(args);
      args.x = dx + h * dim;
      args.slots = slots + h * array;
      if (h % 2 == 1) args.cos = dcos, args.sin = dsin;
      mine.push_back(args);
    }
    backend_->StoreSlots(mine);
    ref_->StoreSlots(reference);
    const std::vector<uint8_t> got = Get(slots, heads * array);
    // A NaN's sign and payload are unspecified.
    int64_t n_different = 0;
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<float> a(dim), e(dim);
      for (int64_t s = 0; s < n_slots; ++s) {
        ref::LoadSlot(type, got.data() + h * array, s, dim, a.data());
        ref::LoadSlot(type, expected.data() + h * array, s, dim, e.data());
        for (int64_t i = 0; i < dim; ++i) n_different += a[i] != e[i] && !(std::isnan(a[i]) && std::isnan(e[i]));
      }
    }
    EXPECT_EQ(n_different, 0) << InfoOf(type).name;
  }
}

TEST_P(SlotsTest, CompactionMovesInPlace) {
  for (const int64_t slot_bytes : {34, 256, 2048}) {
    const int64_t n_slots = 700;
    std::vector<uint8_t> slots(static_cast<size_t>(n_slots * slot_bytes));
    for (uint8_t& byte : slots) byte = static_cast<uint8_t>(rng_.Below(256));
    for (const double share : {0.03, 0.5, 0.97, 1.0}) {
      std::vector<int32_t> keep;
      for (int32_t s = 0; s < n_slots; ++s) {
        if (rng_.Uniform() < share) keep.push_back(s);
      }
      std::vector<uint8_t> expected = slots;
      ref_->CompactSlots(std::vector<CompactSlotsArgs>{{expected.data(), slot_bytes, keep}});
      std::vector<CompactSlotsArgs> args;
      const int n_heads = slot_bytes < 100 ? 50 : 2;  // more than one launch takes, once
      for (int i = 0; i < n_heads; ++i) args.push_back({Put(slots), slot_bytes, keep});
      backend_->CompactSlots(args);
      for (int i : {0, n_heads - 1}) {
        const std::vector<uint8_t> got = Get(args[i].slots, std::ssize(slots));
        EXPECT_TRUE(std::equal(got.begin(), got.begin() + std::ssize(keep) * slot_bytes, expected.begin()))
            << slot_bytes << " bytes, " << keep.size() << " kept";
      }
    }
  }
}

TEST_P(SlotsTest, StatisticsOfVectors) {
  for (DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    const int64_t dim = 64, n_slots = 90;
    std::vector<float> x = cpu::Normals(rng_, n_slots * dim);
    std::fill_n(&x[5 * dim], dim, 0.0f);
    std::vector<uint8_t> slots(static_cast<size_t>(n_slots * SlotBytes(type, dim)));
    ref::StoreSlots({x.data(), dim, n_slots, dim, type, slots.data(), 0});
    for (VectorScore what : {VectorScore::kKeyDiff, VectorScore::kValueNorm}) {
      std::vector<float> expected(n_slots);
      float* out = Poisoned(n_slots, Access::kShared);
      ref_->VectorScores(std::vector<VectorScoresArgs>{{what, slots.data(), type, n_slots, dim, expected.data()}});
      backend_->VectorScores(std::vector<VectorScoresArgs>{{what, Put(slots), type, n_slots, dim, out}});
      EXPECT_LT(Distance(Get(out, n_slots), expected), 2e-6) << InfoOf(type).name;
    }
  }
}

TEST_P(SlotsTest, NoveltyOfFrames) {
  for (const auto& [type, dim, n_slots] :
       {std::tuple{DType::kF16, 32, 24}, {DType::kF32, 72, 205}, {DType::kQ8_0, 96, 131}, {DType::kF16, 512, 11}}) {
    std::vector<float> x = cpu::Normals(rng_, n_slots * dim);
    // No direction of its own, among the recent and before them.
    std::fill_n(&x[3 * dim], dim, 0.0f);
    std::fill_n(&x[(n_slots - 2) * dim], dim, 0.0f);
    std::vector<uint8_t> slots(static_cast<size_t>(n_slots * SlotBytes(type, dim)));
    ref::StoreSlots({x.data(), dim, n_slots, dim, type, slots.data(), 0});
    for (const int32_t recent_from : {n_slots * 2 / 3, 0, n_slots}) {
      std::vector<uint8_t> host_scratch(static_cast<size_t>(FrameNoveltyScratchBytes(n_slots, dim)), 0xff);
      std::vector<float> expected(static_cast<size_t>(n_slots));
      FrameNoveltyArgs host = {slots.data(), type, n_slots, dim, host_scratch.data(), expected.data()};
      FrameNoveltyArgs mine = {
          Put(slots), type, n_slots, dim, Put(host_scratch, Access::kShared), Poisoned(n_slots, Access::kShared)};
      backend_->Synchronise();
      for (int32_t s = 0; s < n_slots; ++s) {
        FrameNoveltyPlaces(host)[s] = FrameNoveltyPlaces(mine)[s] =
            s % 10 == 0 ? kNoPlace : s * 5 % 17 + (s >= recent_from ? kRecentPlace : 0);
      }
      ref_->FrameNovelty(host);
      backend_->FrameNovelty(mine);
      const std::vector<float> got = Get(mine.out, n_slots);
      for (int32_t s = 0; s < n_slots; ++s) {
        ASSERT_NEAR(got[s], expected[s], 2e-6) << InfoOf(type).name << ", slot " << s << " of " << n_slots;
      }
    }
  }
}

TEST_P(SlotsTest, ScenesOfFrames) {
  float last = 0, repeated = 0;
  for (const auto& [type, dim, n_slots] :
       {std::tuple{DType::kF16, 32, 24}, {DType::kF32, 72, 205}, {DType::kQ8_0, 96, 131}, {DType::kF16, 512, 11}}) {
    std::vector<float> x = cpu::Normals(rng_, n_slots * dim);
    std::vector<int32_t> places(static_cast<size_t>(n_slots));
    // Frames of seven slots with places of their own or of the frame before, which some repeat.
    for (int32_t s = 0; s < n_slots; ++s) {
      places[s] = s % 7 * 3 + s / 21 % 2 + (s % 7 == 0 ? kBeginsFrame : 0);
      if (s >= 7 && s / 7 % 3 != 0 && s % 7 < 5) std::copy_n(&x[(s - 7) * dim], dim, &x[s * dim]);
    }
    for (int32_t s = 0; s < n_slots; s += 23) places[s] = kNotInScene;
    for (int32_t s = 1; s < n_slots; ++s) {
      if (places[s - 1] == kNotInScene && places[s] < kBeginsFrame) places[s] += kBeginsFrame;
    }
    std::fill_n(&x[3 * dim], dim, 0.0f);
    std::vector<uint8_t> slots(static_cast<size_t>(n_slots * SlotBytes(type, dim)));
    ref::StoreSlots({x.data(), dim, n_slots, dim, type, slots.data(), 0});
    std::vector<float> expected(static_cast<size_t>(n_slots));
    float* out = Poisoned(n_slots, Access::kShared);
    ref_->Scenes(std::vector<ScenesArgs>{{slots.data(), type, n_slots, dim, 0.5f, places.data(), expected.data()}});
    backend_->Scenes(
        std::vector<ScenesArgs>{{Put(slots), type, n_slots, dim, 0.5f, Put(places, Access::kShared), out}});
    EXPECT_EQ(Get(out, n_slots), expected) << InfoOf(type).name;
    last = std::max(last, *std::max_element(expected.begin(), expected.end()));
    repeated = std::min(repeated, *std::min_element(expected.begin(), expected.end()));
  }
  EXPECT_GT(last, 3);
  EXPECT_LT(repeated, -1);
}

WEIR_ON_DEVICES(SlotsTest);

}  // namespace
}  // namespace weir::testing
