// SPDX-License-Identifier: Apache-2.0
// MiniCPM-V: encoder, slices and the pair, against the reference that made tests/golden/vision/minicpmv.golden
// (tools/golden/minicpmv.py); every policy over a stream of words and pictures.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "support/pair.h"
#include "vision/slices.h"

namespace weir {
namespace {

using testing::Golden;
using testing::GoldenEntry;
using testing::Pair;
using testing::TinyEncoder;
using testing::VisionDir;

constexpr int32_t kPatch = 6, kSide = 36, kMostSlices = 4, kQueries = 5;

const Golden& Reference() {
  static const Golden golden = testing::ReadGolden(VisionDir() + "minicpmv.golden");
  return golden;
}
Pair MakePair(const Pair::How& how = {}) { return Pair("minicpmv_text.gguf", "minicpmv.gguf", how); }

ImageTransform Transform() {
  ImageTransform out;
  out.fit = Fit::kArea;
  out.size = kSide;
  out.factor = kPatch;
  for (int c = 0; c < 3; ++c) out.mean[c] = out.std[c] = 0.5f;
  return out;
}

// The whole picture, then its slices.
void ExpectViews(const RgbView& image, const GoldenEntry& want) {
  const ImageTransform transform = Transform();
  Ledger ledger;
  std::vector<float> got, input(static_cast<size_t>(InputFloats(transform)));
  const auto take = [&] {
    const PictureSize size = InputSize(input.data(), transform);
    ASSERT_LE(3 * size.width * size.height, InputFloats(transform) - 2);
    got.insert(got.end(), input.begin(), input.begin() + int64_t{3} * size.width * size.height);
  };
  ASSERT_TRUE(Preprocess(image, transform, ledger, input.data()).ok());
  take();
  const SliceLayout layout = LayOutSlices(image.width, image.height, transform, kMostSlices);
  for (int32_t i = 0; i < layout.n(); ++i) {
    const PictureSize slice = layout.slice;
    const PicturePlace place = {{layout.n_x * slice.width, layout.n_y * slice.height},
                                slice,
                                i % layout.n_x * slice.width,
                                i / layout.n_x * slice.height};
    ASSERT_TRUE(PreprocessPlace(image, transform, place, ledger, input.data()).ok());
    take();
  }
  EXPECT_LE(ledger.peak_bytes(), PreprocessBytes(image.width, image.height, transform));
  ASSERT_EQ(got.size(), want.data.size()) << "another number of views, or another size";
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want.data[i]) * transform.std[0] * 255);
  }
  EXPECT_LT(worst, 0.01) << "steps of 8 bits";
}

TEST(Minicpmv, ViewsMatchTheReference) {
  EXPECT_EQ(testing::ForEachPicture(
                Reference(), "views",
                [](const std::string&, const RgbView& image, const GoldenEntry& want) { ExpectViews(image, want); }),
            7);
}

TEST(Minicpmv, ViewsOfRealPictures) { testing::ForEachFile("minicpmv_files.golden", ExpectViews); }

// Grids of the released processors: slices of about 448 x 448 pixels, nine at most.
TEST(Minicpmv, GridsFollowThePicture) {
  ImageTransform transform = Transform();
  transform.size = 448;
  transform.factor = 14;
  for (const auto& [width, height, n_x, n_y] :
       {std::tuple{448, 448, 0, 0}, std::tuple{448, 449, 1, 2}, std::tuple{1000, 1000, 2, 2},
        std::tuple{1920, 1080, 4, 2}, std::tuple{4000, 3000, 3, 3}, std::tuple{300, 4000, 1, 7}}) {
    const SliceLayout layout = LayOutSlices(width, height, transform, 9);
    EXPECT_EQ(layout.n_x, n_x) << width << " x " << height;
    EXPECT_EQ(layout.n_y, n_y) << width << " x " << height;
  }
}

// Every view of every picture that is not refused fits what is planned for.
TEST(Minicpmv, ViewsFitThePlan) {
  ImageTransform transform = Transform();
  for (const auto& [size, factor] : {std::pair{448, 14}, std::pair{kSide, kPatch}}) {
    transform.size = size;
    transform.factor = factor;
    for (int32_t width = 1; width <= 4096; width = width * 3 / 2 + 1) {
      for (int32_t height = 1; height <= 4096; height = height * 4 / 3 + 1) {
        const auto whole = MultiplesSize(width, height, transform);
        if (std::max(width, height) > 200 * std::min(width, height)) {
          EXPECT_EQ(whole.status().code(), StatusCode::kUnsupported);
          continue;
        }
        ASSERT_TRUE(whole.ok());
        for (const PictureSize view : {*whole, LayOutSlices(width, height, transform, 9).slice}) {
          EXPECT_LE(int64_t{3} * view.width * view.height, InputFloats(transform) - 2) << width << " x " << height;
          EXPECT_LE(std::max(view.width, view.height), MaxAreaSide(transform)) << width << " x " << height;
          EXPECT_EQ(view.width % factor + view.height % factor, 0);
        }
      }
    }
  }
}

TEST(Minicpmv, EveryIntermediateMatchesTheReference) {
  testing::ExpectEncoder("minicpmv.gguf", Reference(), "mm.proj");
}

TEST(Minicpmv, RowsMatchTheReference) {
  testing::ExpectRows("minicpmv.gguf", Reference(), 7);
  TinyEncoder tiny("minicpmv.gguf", MakeCpuBackend(1));
  EXPECT_EQ(tiny.encoder->config().n_rows, kQueries);
  EXPECT_EQ(tiny.encoder->config().max_rows(), kQueries * (1 + kMostSlices));
}

TEST(Minicpmv, WordsAndPicturesMatchTheReference) {
  for (const char* policy : {"full", "a_vl:S=1,positions=abs", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(policy) + " on " + device);
      testing::ExpectTalk(Reference(), MakePair({policy, 256, device}), 1e-4);
    }
  }
}

TEST(Minicpmv, TheSameWordsFollow) {
  for (const char* device : {"ref", "cpu"}) {
    SCOPED_TRACE(device);
    const Pair pair = MakePair({"full", 256, device});
    testing::ExpectTalk(Reference(), pair, 1e-4);
    for (const float want : Reference().at("greedy.ids").data) {
      std::vector<float> logits = testing::LogitsOf(*pair.session);
      logits[3] = -INFINITY;  // the reference has it stand for a picture's rows
      const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      ASSERT_EQ(best, want);
      pair.Say({best});
    }
  }
}

// The words around slices are those of the reference, in its order.
TEST(Minicpmv, WordsStandAroundSlices) {
  const Pair pair = MakePair();
  const GoldenEntry& ids = Reference().at("talk.ids");
  int64_t row = 0;
  for (; row < 4; ++row) pair.Say({static_cast<int32_t>(ids.data[row])});
  pair.Show(90, 61);
  const std::span<const SlotMeta> held = pair.session->pot().meta(0);
  ASSERT_LT(std::ssize(held), ids.rows);
  EXPECT_EQ(ids.data[held.size() - 1], 7) << "the word that ends a slice";
  for (size_t i = 0; i < held.size(); ++i) {
    if (ids.data[i] >= 0) {
      EXPECT_EQ(held[i].token_id, ids.data[i]) << "row " << i;
    } else {
      EXPECT_EQ(held[i].modality, Modality::kImage) << "row " << i;
    }
  }
}

TEST(Minicpmv, AFrameIsOneView) {
  const Pair pair = MakePair();
  std::vector<float> frame(static_cast<size_t>(pair.reader->n_prepared()), 0.25f);
  SetInputSize({4 * kPatch, 9 * kPatch}, pair.reader->config().transform, frame.data());
  ASSERT_TRUE(pair.reader->ReadPrepared(frame.data(), {}).ok());
  EXPECT_EQ(pair.session->counters().by[static_cast<size_t>(Modality::kVideo)].seen, kQueries);
  EXPECT_EQ(pair.session->counters().seen, kQueries + 2);
  // The same, decoded but not prepared: a picture of this size is read in slices.
  const std::vector<uint8_t> rgb = testing::Picture(90, 61);
  ASSERT_TRUE(pair.reader->ReadPixels({rgb.data(), 90, 61}, Modality::kVideo, {}).ok());
  EXPECT_EQ(pair.session->counters().seen, 2 * (kQueries + 2));
}

TEST(Minicpmv, LongPicturesAreRefused) {
  TinyEncoder tiny("minicpmv.gguf", MakeCpuBackend(1));
  Ledger ledger;
  auto images = std::move(ImageEncoder::Make(*tiny.encoder, ledger)).value();
  const std::vector<uint8_t> rgb(3 * 402);
  const Status status = images->Encode({rgb.data(), 402, 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("402 x 1"), std::string::npos) << status.message();
  const std::vector<uint8_t> shorter(3 * 400 * 2);
  EXPECT_TRUE(images->Encode({shorter.data(), 400, 2}).ok());
}

class MinicpmvPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(MinicpmvPolicies, AStreamOfPictures) {
  const Pair::How how = {GetParam(), 48};
  testing::ExpectStream(MakePair(how), MakePair(how));
}

INSTANTIATE_TEST_SUITE_P(All, MinicpmvPolicies, ::testing::ValuesIn(testing::EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
