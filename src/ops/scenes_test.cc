// SPDX-License-Identifier: Apache-2.0
#include "ops/scenes.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

constexpr int32_t kText = kNotInScene, kBegin = kBeginsFrame;

// Keys of two numbers each.
std::vector<float> Scenes(const std::vector<float>& keys, const std::vector<int32_t>& places, float change = 0.2f) {
  std::vector<float> out(places.size(), 42);
  ScenesArgs args;
  args.keys = reinterpret_cast<const uint8_t*>(keys.data());
  args.type = DType::kF32;
  args.n_slots = std::ssize(places);
  args.head_dim = 2;
  args.change = change;
  args.places = places.data();
  args.out = out.data();
  ref::Scenes(args);
  return out;
}

TEST(Scenes, AFrameThatChangesInHalfOfItsPlacesBeginsOne) {
  const std::vector<int32_t> two_frames = {kBegin, 1, 2, kBegin, 1, 2};
  // One of three changes, whatever the keys' lengths; then two do.
  EXPECT_EQ(Scenes({1, 0, 1, 0, 1, 0, 5, 0, 0, 1, 2, 0}, two_frames), (std::vector<float>{1, 1, 1, -1, 1, -1}));
  EXPECT_EQ(Scenes({1, 0, 1, 0, 1, 0, 5, 0, 0, 1, 0, 1}, two_frames), (std::vector<float>{1, 1, 1, 2, 2, 2}));
  // One of two is half.
  EXPECT_EQ(Scenes({1, 0, 1, 0, 1, 0, 0, 1}, {kBegin, 1, kBegin, 1}), (std::vector<float>{1, 1, 2, 2}));
}

TEST(Scenes, TheFirstFrameIsWhatOthersAreComparedWith) {
  // Keys that turn by 0.4 radians a frame: 1 - cos is 0.08 from frame to frame, 0.30 after two.
  EXPECT_EQ(Scenes({1, 0, 0.921f, 0.389f, 0.697f, 0.717f, 0.362f, 0.932f}, {kBegin, kBegin, kBegin, kBegin}),
            (std::vector<float>{1, -1, 2, -2}));
}

TEST(Scenes, OnlyCommonPlacesAreCompared) {
  // Place 4 is in both and changes, or does not; 0 and 65535 are in one each. Without a common place a scene begins.
  EXPECT_EQ(Scenes({1, 0, 1, 0, 0, 1, 1, 0}, {kBegin, 4, kBegin + 4, 65535}), (std::vector<float>{1, 1, 2, 2}));
  EXPECT_EQ(Scenes({1, 0, 1, 0, 1, 0, 1, 0}, {kBegin, 4, kBegin + 4, 65535}), (std::vector<float>{1, 1, -1, -1}));
  EXPECT_EQ(Scenes({1, 0, 1, 0}, {kBegin + 3, kBegin + 4}), (std::vector<float>{1, 2}));
}

TEST(Scenes, WhatTheFirstFrameLostDoesNotComeBackWithALaterOne) {
  // Two frames of places 0 to 4; of the first, 1 and 3 were dropped. Of the second only place 2 changed.
  EXPECT_EQ(Scenes({1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0}, {kBegin, 2, 4, kBegin, 1, 2, 3, 4}),
            (std::vector<float>{1, 1, 1, -1, -1, 1, -1, -1}));
}

TEST(Scenes, TextIsInNoneAndEndsNone) {
  EXPECT_EQ(Scenes({1, 0, 1, 0, 0, 1, 1, 0, 0, 1}, {kText, kBegin, kText, kBegin, kText}),
            (std::vector<float>{0, 1, 0, -1, 0}));
  EXPECT_EQ(Scenes({}, {}), (std::vector<float>{}));
  EXPECT_EQ(Scenes({0, 0, 0, 0}, {kBegin, kBegin}), (std::vector<float>{1, 2})) << "zero keys resemble nothing";
}

}  // namespace
}  // namespace weir
