// SPDX-License-Identifier: Apache-2.0
// Pictures of events: what they show, which of them are kept, their memory, and that they can be sent as PNG files.
#include "serve/event_pictures.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "serve/png.h"

namespace weir {
namespace {

class EventPicturesTest : public ::testing::Test {
 protected:
  EventPicturesTest() {
    transform_.size = 64;
    transform_.fit = Fit::kStretch;
  }
  std::shared_ptr<EventPictures> Make() {
    auto made = EventPictures::Make(transform_, ledger_);
    EXPECT_TRUE(made.ok());
    return *std::move(made);
  }
  void See(EventPictures& pictures, uint8_t grey) {
    const std::vector<uint8_t> pixels(3 * 32 * 16, grey);
    pictures.See(RgbView{pixels.data(), 32, 16});
  }

  Ledger ledger_{64 << 20};
  ImageTransform transform_;
};

TEST_F(EventPicturesTest, ItsBytesAreReserved) {
  const auto pictures = Make();
  EXPECT_EQ(ledger_.used_bytes(), EventPictures::Bytes(transform_));
  EXPECT_GE(EventPictures::Bytes(transform_), 17 * 3 * 64 * 64);
  transform_.size = 1024;
  EXPECT_LT(EventPictures::Bytes(transform_), 2 << 20) << "of a large encoder they are small all the same";
  Ledger little(1000);
  EXPECT_EQ(EventPictures::Make(transform_, little).status().code(), StatusCode::kOverBudget);
}

TEST_F(EventPicturesTest, AnEventKeepsWhatTheStreamShowed) {
  const auto pictures = Make();
  EXPECT_FALSE(pictures->Keep(1));
  EXPECT_FALSE(pictures->Get(1));
  EXPECT_FALSE(pictures->Get(0));
  See(*pictures, 100);
  EXPECT_TRUE(pictures->Keep(2));
  See(*pictures, 200);
  EXPECT_TRUE(pictures->Keep(3));
  const auto second = pictures->Get(2), third = pictures->Get(3);
  ASSERT_TRUE(second && third);
  EXPECT_EQ(second->size.width, 32);
  EXPECT_EQ(second->size.height, 16);
  EXPECT_EQ(second->bytes, std::vector<uint8_t>(3 * 32 * 16, 100));
  EXPECT_EQ(third->bytes[0], 200);
  EXPECT_FALSE(pictures->Get(1));
}

TEST_F(EventPicturesTest, TheOldestGoes) {
  const auto pictures = Make();
  for (int i = 1; i <= 20; ++i) {
    See(*pictures, static_cast<uint8_t>(i));
    pictures->Keep(i);
  }
  for (int i = 1; i <= 20; ++i) {
    const auto copy = pictures->Get(i);
    ASSERT_EQ(copy.has_value(), i > 4) << i;
    if (copy) {
      EXPECT_EQ(copy->bytes[0], i);
    }
  }
}

TEST_F(EventPicturesTest, APreparedFrameIsShownAsItWas) {
  const auto pictures = Make();
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 128 * 64; ++i)
    pixels.insert(pixels.end(), {static_cast<uint8_t>(i % 128 < 64 ? 250 : 0), 10, 90});
  std::vector<float> input(static_cast<size_t>(InputFloats(transform_)));
  Ledger work(1 << 24);
  ASSERT_TRUE(Preprocess({pixels.data(), 128, 64}, transform_, work, input.data()).ok());
  pictures->See(input.data(), {128, 64});
  ASSERT_TRUE(pictures->Keep(1));
  const auto copy = pictures->Get(1);
  ASSERT_TRUE(copy);
  EXPECT_NEAR(copy->size.width, 2 * copy->size.height, 2);
  EXPECT_NEAR(copy->bytes[0], 250, 2);
  EXPECT_NEAR(copy->bytes[1], 10, 2);
  EXPECT_NEAR(copy->bytes[2], 90, 2);
  EXPECT_NEAR(copy->bytes[copy->bytes.size() - 3], 0, 2);
}

TEST_F(EventPicturesTest, APngFileOfOne) {
  const auto pictures = Make();
  See(*pictures, 77);
  ASSERT_TRUE(pictures->Keep(1));
  const auto copy = pictures->Get(1);
  ASSERT_TRUE(copy);
  const auto png = EncodePng(copy->view());
  ASSERT_TRUE(png.ok());
  EXPECT_TRUE(png->starts_with("\x89PNG\r\n\x1a\n"));
  EXPECT_LE(static_cast<int64_t>(png->size()), PngBytes(32 * 16));
}

}  // namespace
}  // namespace weir
