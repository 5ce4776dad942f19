// SPDX-License-Identifier: Apache-2.0
// LFM2-VL: encoder, tiles and the pair, against the reference implementation that made
// tests/golden/vision/lfm2_vision.golden (tools/golden/lfm2_vision.py); every policy over a stream of words and
// pictures.
#include <gtest/gtest.h>

#include "support/pair.h"
#include "vision/stretch.h"

namespace weir {
namespace {

using testing::Golden;
using testing::GoldenEntry;
using testing::Pair;
using testing::TinyEncoder;
using testing::VisionDir;

constexpr int32_t kTile = 30, kMostTiles = 4, kFactor = 10;
constexpr int64_t kMostPixels = 1600;

const Golden& Reference() {
  static const Golden golden = testing::ReadGolden(VisionDir() + "lfm2_vision.golden");
  return golden;
}

ImageTransform Transform() {
  ImageTransform out;
  out.fit = Fit::kMultiples;
  out.resample = Resample::kBilinear;
  out.at_least_factor = true;
  out.factor = kFactor;
  out.size = kTile;
  out.min_pixels = 400;
  out.max_pixels = kMostPixels;
  for (int c = 0; c < 3; ++c) out.mean[c] = out.std[c] = 0.5f;
  return out;
}

// The views of a picture, tiles first. The reference resizes with torchvision, whose 8-bit results differ from
// Pillow's, which are computed here, by one step at most.
void ExpectViews(const RgbView& image, const GoldenEntry& want) {
  const ImageTransform transform = Transform();
  const auto rounded = [](int32_t n) { return static_cast<int64_t>(std::nearbyint(n / double{kFactor})) * kFactor; };
  Ledger ledger;
  std::vector<float> got, input(static_cast<size_t>(InputFloats(transform)));
  if (rounded(image.width) * rounded(image.height) > 2 * kMostPixels) {
    const TileGrid grid = ChooseGrid(image.width, image.height, kTile, 2, kMostTiles);
    for (int32_t i = 0; i < grid.n(); ++i) {
      const Square square = {grid.n_x * kTile, grid.n_y * kTile, i % grid.n_x * kTile, i / grid.n_x * kTile};
      ASSERT_TRUE(PreprocessSquare(image, transform, square, ledger, input.data()).ok());
      got.insert(got.end(), input.begin(), input.begin() + 3 * kTile * kTile);
    }
  }
  ASSERT_TRUE(Preprocess(image, transform, ledger, input.data()).ok());
  EXPECT_LE(ledger.peak_bytes(), PreprocessBytes(image.width, image.height, transform));
  const PictureSize size = InputSize(input.data(), transform);
  got.insert(got.end(), input.begin(), input.begin() + int64_t{3} * size.width * size.height);
  ASSERT_EQ(got.size(), want.data.size()) << "another number of views, or another size";
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want.data[i]) * transform.std[0] * 255);
  }
  EXPECT_LT(worst, 1.01) << "steps of 8 bits";
}

TEST(Lfm2Vision, ViewsMatchTheReference) {
  EXPECT_EQ(testing::ForEachPicture(
                Reference(), "tiles",
                [](const std::string&, const RgbView& image, const GoldenEntry& want) { ExpectViews(image, want); }),
            8);
}

TEST(Lfm2Vision, ViewsOfRealPictures) { testing::ForEachFile("lfm2_vision_files.golden", ExpectViews); }

TEST(Lfm2Vision, EveryIntermediateMatchesTheReference) {
  testing::ExpectEncoder("lfm2_vision.gguf", Reference(), "mm.2");
}

TEST(Lfm2Vision, EveryIntermediateWithoutTheNorm) {
  testing::ExpectEncoder("lfm2_plain.gguf", testing::ReadGolden(VisionDir() + "lfm2_plain.golden"), "mm.2");
  TinyEncoder tiny("lfm2_plain.gguf", MakeCpuBackend(1));
  EXPECT_EQ(tiny.encoder->config().max_tiles, 0) << "its processor cuts nothing";
}

// Rows of the reference's own pixels: each view of each picture.
TEST(Lfm2Vision, RowsOfEveryViewMatchTheReference) {
  TinyEncoder tiny("lfm2_vision.gguf", MakeCpuBackend(2));
  ASSERT_NE(tiny.encoder, nullptr);
  const ImageTransform& transform = tiny.encoder->config().transform;
  const int64_t n_embd = tiny.encoder->config().n_embd;
  auto space = std::move(HostBuffer::Allocate(tiny.ledger, MemTag::kVision, tiny.encoder->WorkspaceBytes())).value();
  int n_views = 0;
  for (const auto& [name, want] : Reference()) {
    if (!name.starts_with("rows.")) continue;
    SCOPED_TRACE(name);
    const std::string size = name.substr(5);
    const GoldenEntry &pixels = Reference().at("tiles." + size), &shapes = Reference().at("shapes." + size);
    std::vector<float> rows;
    const float* from = pixels.data.data();
    for (int64_t view = 0; view < shapes.rows; ++view, ++n_views) {
      const auto height = static_cast<int32_t>(shapes.data[2 * view]) * 5,
                 width = static_cast<int32_t>(shapes.data[2 * view + 1]) * 5;
      std::vector<float> input(static_cast<size_t>(InputFloats(transform)));
      std::copy_n(from, 3 * width * height, input.begin());
      from += 3 * width * height;
      SetInputSize({width, height}, transform, input.data());
      std::vector<float> out(static_cast<size_t>(tiny.encoder->RowsOf(input.data()).n * n_embd));
      tiny.encoder->Encode({input.data(), out.data(), space.data()});
      rows.insert(rows.end(), out.begin(), out.end());
    }
    ASSERT_EQ(rows.size(), want.data.size());
    EXPECT_LT(testing::RelativeError(rows.data(), want.data.data(), rows.size()), 1e-4);
  }
  EXPECT_GT(n_views, 12);
}

// Of a whole picture: as many rows, and the same but for a step of 8 bits in some pixels.
TEST(Lfm2Vision, RowsOfPictures) {
  TinyEncoder tiny("lfm2_vision.gguf", MakeCpuBackend(2));
  Ledger ledger;
  auto images = std::move(ImageEncoder::Make(*tiny.encoder, ledger)).value();
  EXPECT_EQ(ledger.used_bytes(), ImageEncoder::Bytes(*tiny.encoder));
  EXPECT_EQ(testing::ForEachPicture(Reference(), "rows",
                                    [&](const std::string&, const RgbView& image, const GoldenEntry& want) {
                                      const auto rows = images->Encode(image);
                                      ASSERT_TRUE(rows.ok()) << rows.status().message();
                                      ASSERT_EQ(rows->size(), want.data.size());
                                      EXPECT_LT(testing::RelativeError(rows->data(), want.data.data(), rows->size()),
                                                2e-2);
                                      EXPECT_LE(want.rows, tiny.encoder->config().max_rows());
                                    }),
            8);
  EXPECT_EQ(images->Encode({nullptr, 0, 0}).status().code(), StatusCode::kInvalidArgument);
}

// Logits of pictures whose pixels are the reference's: the processors' steps of 8 bits are not the language model's.
class Talk {
 public:
  explicit Talk(const Pair& pair) : pair_(pair) {}

  void Read() {
    const GoldenEntry &ids = Reference().at("talk.ids"), &want = Reference().at("talk.logits"),
                      &pictures = Reference().at("talk.pictures");
    int64_t row = 0, picture = 0;
    while (row < ids.rows) {
      if (ids.data[row] >= 0) {
        pair_.Say({static_cast<int32_t>(ids.data[row++])});
      } else {
        const std::string size = std::to_string(static_cast<int>(pictures.data[2 * picture])) + "x" +
                                 std::to_string(static_cast<int>(pictures.data[2 * picture + 1]));
        const GoldenEntry& rows = Reference().at("rows." + size);
        int64_t n = 0;
        while (row + n < ids.rows && ids.data[row + n] < 0) ++n;
        ASSERT_LE(done_ + n, rows.rows);
        const std::span<const float> part(rows.data.data() + done_ * rows.cols, static_cast<size_t>(n * rows.cols));
        ASSERT_TRUE(pair_.session->AppendEmbeddings(part, Modality::kImage, {}).ok());
        done_ += n;
        row += n;
        if (done_ == rows.rows) done_ = 0, ++picture;
      }
      const std::vector<float> logits = testing::LogitsOf(*pair_.session);
      EXPECT_LT(testing::RelativeError(logits.data(), &want.data[(row - 1) * want.cols], logits.size()), 1e-4)
          << "row " << row - 1;
    }
  }

 private:
  const Pair& pair_;
  int64_t done_ = 0;  // rows of the current picture
};

TEST(Lfm2Vision, WordsAndPicturesMatchTheReference) {
  for (const char* policy : {"full", "streaming_llm"}) {
    for (const char* device : {"ref", "cpu"}) {
      SCOPED_TRACE(std::string(policy) + " on " + device);
      const Pair pair("lfm2_text.gguf", "lfm2_vision.gguf", {policy, 256, device});
      Talk(pair).Read();
    }
  }
}

// The words around tiles are those of the reference, in its order.
TEST(Lfm2Vision, WordsStandAroundTiles) {
  const Pair pair("lfm2_text.gguf", "lfm2_vision.gguf", {});
  const GoldenEntry& ids = Reference().at("talk.ids");
  int64_t row = 0;
  for (; row < 4; ++row) pair.Say({static_cast<int32_t>(ids.data[row])});
  pair.Show(90, 61);
  const std::span<const SlotMeta> held = pair.session->pot().meta(0);
  ASSERT_LT(std::ssize(held), ids.rows);
  EXPECT_EQ(ids.data[held.size() - 1], 5) << "the word that ends a picture";
  for (size_t i = 0; i < held.size(); ++i) {
    if (ids.data[i] >= 0) {
      EXPECT_EQ(held[i].token_id, ids.data[i]) << "row " << i;
    } else {
      EXPECT_EQ(held[i].modality, Modality::kImage) << "row " << i;
    }
  }
}

TEST(Lfm2Vision, AFrameIsReadOnce) {
  const Pair pair("lfm2_text.gguf", "lfm2_vision.gguf", {});
  std::vector<float> frame(static_cast<size_t>(pair.reader->n_prepared()), 0.25f);
  SetInputSize({20, 30}, pair.reader->config().transform, frame.data());
  ASSERT_TRUE(pair.reader->ReadPrepared(frame.data(), {}).ok());
  EXPECT_EQ(pair.session->counters().by[static_cast<size_t>(Modality::kVideo)].seen, 6);
  EXPECT_EQ(pair.session->counters().seen, 8);
}

class Lfm2VisionPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(Lfm2VisionPolicies, AStreamOfPictures) {
  const Pair::How how = {GetParam(), 48};
  testing::ExpectStream(Pair("lfm2_text.gguf", "lfm2_vision.gguf", how),
                        Pair("lfm2_text.gguf", "lfm2_vision.gguf", how));
}

INSTANTIATE_TEST_SUITE_P(All, Lfm2VisionPolicies, ::testing::ValuesIn(testing::EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
