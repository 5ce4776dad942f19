// SPDX-License-Identifier: Apache-2.0
// InternVL: encoder, tiles and the pair, against the reference implementation that made
// tests/golden/vision/internvl.golden (tools/golden/internvl.py); every policy over a stream of words and pictures.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "vision/stretch.h"

namespace weir {
namespace {

using testing::Golden;
using testing::GoldenEntry;
using testing::TinyEncoder;
using testing::VisionDir;

constexpr int32_t kSide = 30, kMost = 6;
constexpr size_t kPlane = size_t{kSide} * kSide;

const Golden& Reference() {
  static const Golden golden = testing::ReadGolden(VisionDir() + "internvl.golden");
  return golden;
}

ImageTransform Transform() {
  ImageTransform out;
  out.size = kSide;
  out.fit = Fit::kStretch;
  return out;
}

// The tiles of a picture, as ImageEncoder makes them.
void ExpectTiles(const RgbView& image, const GoldenEntry& want) {
  const ImageTransform transform = Transform();
  const TileGrid grid = ChooseGrid(image.width, image.height, kSide, 1, kMost);
  const int32_t n_tiles = grid.n() > 1 ? grid.n() : 0;
  ASSERT_EQ(want.rows, int64_t{3} * kSide * (n_tiles + 1)) << "another number of tiles";
  Ledger ledger;
  std::vector<float> out(want.data.size());
  float* to = out.data();
  for (int32_t i = 0; i < n_tiles; ++i, to += 3 * kPlane) {
    const Square square = {grid.n_x * kSide, grid.n_y * kSide, i % grid.n_x * kSide, i / grid.n_x * kSide};
    ASSERT_TRUE(PreprocessSquare(image, transform, square, ledger, to).ok());
  }
  ASSERT_TRUE(Preprocess(image, transform, ledger, to).ok());
  EXPECT_LE(ledger.peak_bytes(), PreprocessBytes(image.width, image.height, transform));
  testing::ExpectSamePixels(out.data(), want, transform, kPlane);
}

TEST(InternVl, TilesMatchTheReference) {
  EXPECT_EQ(testing::ForEachPicture(
                Reference(), "tiles",
                [](const std::string&, const RgbView& image, const GoldenEntry& want) { ExpectTiles(image, want); }),
            6);
  // Looked at once, as frames are.
  EXPECT_EQ(testing::ForEachPicture(Reference(), "once",
                                    [](const std::string&, const RgbView& image, const GoldenEntry& want) {
                                      Ledger ledger;
                                      std::vector<float> out(want.data.size());
                                      ASSERT_TRUE(Preprocess(image, Transform(), ledger, out.data()).ok());
                                      testing::ExpectSamePixels(out.data(), want, Transform(), kPlane);
                                    }),
            6);
}

TEST(InternVl, TilesOfRealPictures) { testing::ForEachFile("internvl_files.golden", ExpectTiles); }

TEST(InternVl, GridsAreTheReferences) {
  const GoldenEntry& want = Reference().at("grids");
  ASSERT_GT(want.rows, 200);
  for (int64_t i = 0; i < want.rows; ++i) {
    const float* row = &want.data[i * want.cols];
    const auto at = [&](int k) { return static_cast<int32_t>(row[k]); };
    const TileGrid grid = ChooseGrid(at(0), at(1), kSide, 1, at(2));
    EXPECT_EQ(grid.n_x, at(3)) << at(0) << " x " << at(1) << ", at most " << at(2);
    EXPECT_EQ(grid.n_y, at(4)) << at(0) << " x " << at(1) << ", at most " << at(2);
  }
  // With a least number, too.
  EXPECT_EQ(ChooseGrid(30, 30, kSide, 4, 6).n(), 4);
  EXPECT_EQ(ChooseGrid(1, 4096, kSide, 5, 5).n_y, 5);
}

TEST(InternVl, EveryIntermediateMatchesTheReference) { testing::ExpectEncoder("internvl.gguf", Reference(), "mm.3"); }

TEST(InternVl, EveryIntermediateOfTheLargeOne) {
  testing::ExpectEncoder("internvl_large.gguf", testing::ReadGolden(VisionDir() + "internvl_large.golden"), "mm.3");
}

TEST(InternVl, RowsOfAllTilesMatchTheReference) {
  testing::ExpectRows("internvl.gguf", Reference(), 6);
  TinyEncoder tiny("internvl.gguf", MakeCpuBackend(1));
  EXPECT_EQ(tiny.encoder->config().n_rows, 9);
  EXPECT_EQ(tiny.encoder->config().max_rows(), 9 * (1 + kMost));
}

TEST(InternVl, WordsAndPicturesMatchTheReference) {
  for (const char* policy : {"full", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(policy) + " on " + device);
      testing::ExpectTalk(Reference(), testing::Pair("internvl_qwen2.gguf", "internvl.gguf", {policy, 256, device}));
    }
  }
}

TEST(InternVl, AFrameIsReadOnce) {
  const testing::Pair pair("internvl_qwen2.gguf", "internvl.gguf", {});
  std::vector<float> frame(static_cast<size_t>(pair.reader->n_prepared()), 0.25f);
  ASSERT_TRUE(pair.reader->ReadPrepared(frame.data(), {}).ok());
  EXPECT_EQ(pair.session->counters().by[static_cast<size_t>(Modality::kVideo)].seen, 9);
  EXPECT_EQ(pair.session->counters().seen, 11);
}

TEST(InternVl, AnotherModelIsRefusedByName) {
  LoadModelOptions load;
  load.path = VisionDir() + "qwen2vl.gguf";
  auto model = std::move(LoadedModel::Load(load)).value();
  const auto loaded = LoadedEncoder::Load(VisionDir() + "internvl.gguf", *model);
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(loaded.status().message().find("<img>"), std::string::npos) << loaded.status().message();
  for (const char* file : {"internvl.gguf", "qwen2vl.gguf"}) {
    EXPECT_NE(loaded.status().message().find(file), std::string::npos) << loaded.status().message();
  }
  EXPECT_EQ(loaded.status().message().find('\n'), std::string::npos);
}

class InternVlPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(InternVlPolicies, AStreamOfPictures) {
  const testing::Pair::How how = {GetParam(), 48};
  testing::ExpectStream(testing::Pair("internvl_qwen2.gguf", "internvl.gguf", how),
                        testing::Pair("internvl_qwen2.gguf", "internvl.gguf", how));
}

INSTANTIATE_TEST_SUITE_P(All, InternVlPolicies, ::testing::ValuesIn(testing::EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
