// SPDX-License-Identifier: Apache-2.0
// Pictures in tiles (LLaVA-1.6) against the reference that made tests/golden/vision/next.golden: the tiles' pixels to
// less than one step of 8 bits, the rows of the whole picture, tiles and line ends to 1e-3.
#include "vision/tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "support/build_paths.h"
#include "support/golden.h"
#include "support/picture.h"
#include "vision/encoder.h"

namespace weir {
namespace {

constexpr int32_t kSide = 37, kRowsPerSide = 5;
constexpr Grid kGrids[] = {
    {2 * kSide, kSide}, {kSide, 2 * kSide}, {2 * kSide, 2 * kSide}, {kSide, 3 * kSide}, {3 * kSide, kSide}};

std::string VisionFile(const std::string& name) { return SourceDir() + "/tests/golden/vision/" + name; }

using testing::Picture;

struct Size {
  int32_t width, height;
};
Size SizeOf(const std::string& name) {
  const size_t dot = name.find('.'), x = name.find('x', dot);
  return {std::stoi(name.substr(dot + 1)), std::stoi(name.substr(x + 1))};
}

TEST(Tiles, PixelsMatchTheReference) {
  const testing::Golden golden = testing::ReadGolden(VisionFile("next.golden"));
  int n_pictures = 0;
  for (const auto& [name, want] : golden) {
    if (name.rfind("tiles.", 0) != 0) continue;
    SCOPED_TRACE(name);
    ++n_pictures;
    const auto [width, height] = SizeOf(name);
    const std::vector<uint8_t> rgb = Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    const RgbView image = {rgb.data(), width, height};
    ImageTransform transform;
    transform.size = kSide;
    transform.fit = Fit::kStretch;
    Ledger ledger;
    std::vector<float> out(3 * kSide * kSide);
    size_t at = 0;
    const auto expect_same = [&] {
      double worst = 0;
      for (size_t i = 0; i < out.size(); ++i, ++at) {
        const float step = transform.std[i / (kSide * kSide)] * 255;
        worst = std::max(worst, std::abs(static_cast<double>(out[i]) - want.data[at]) * step);
      }
      EXPECT_LT(worst, 0.01) << "steps of 8 bits";
    };
    ASSERT_TRUE(Preprocess(image, transform, ledger, out.data()).ok());
    expect_same();
    const TileLayout layout = LayOutTiles(width, height, kGrids, kSide, kRowsPerSide);
    for (int32_t y = 0; y < layout.grid.height; y += kSide) {
      for (int32_t x = 0; x < layout.grid.width; x += kSide) {
        ASSERT_LT(at, want.data.size()) << "another grid than the reference's";
        const Square square = {layout.width, layout.height, x - layout.left, y - layout.top};
        ASSERT_TRUE(PreprocessSquare(image, transform, square, ledger, out.data()).ok());
        expect_same();
      }
    }
    EXPECT_EQ(at, want.data.size());
    EXPECT_LE(ledger.peak_bytes(), PreprocessBytes(width, height, transform));
    EXPECT_EQ(ledger.used_bytes(), 0);
  }
  EXPECT_GE(n_pictures, 5);
}

TEST(Tiles, RowsMatchTheReference) {
  const testing::Golden golden = testing::ReadGolden(VisionFile("next.golden"));
  auto file = std::move(GgufFile::Open(VisionFile("clip_next.gguf"))).value();
  const auto backend = MakeCpuBackend(2);
  Ledger weights, ledger;
  auto loaded = LoadEncoder(*file, *backend, weights);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  Encoder& encoder = **loaded;
  EXPECT_EQ(encoder.config().grids.size(), 5u);
  auto images = std::move(ImageEncoder::Make(encoder, ledger)).value();
  EXPECT_EQ(ledger.used_bytes(), ImageEncoder::Bytes(encoder));
  int n_pictures = 0;
  for (const auto& [name, want] : golden) {
    if (name.rfind("rows.", 0) != 0) continue;
    SCOPED_TRACE(name);
    ++n_pictures;
    const auto [width, height] = SizeOf(name);
    const std::vector<uint8_t> rgb = Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    const auto rows = images->Encode({rgb.data(), width, height});
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    ASSERT_EQ(rows->size(), want.data.size());
    EXPECT_LE(want.rows, encoder.config().max_rows());
    EXPECT_LT(testing::RelativeError(rows->data(), want.data.data(), want.data.size()), 1e-3);
  }
  EXPECT_GE(n_pictures, 7);
}

TEST(Tiles, LayoutsOfAnySizeStayInsideTheirGrid) {
  for (int32_t width = 1; width < 3000; width = width * 3 / 2 + 1) {
    for (int32_t height = 1; height < 3000; height = height * 3 / 2 + 1) {
      const TileLayout l = LayOutTiles(width, height, kGrids, kSide, kRowsPerSide);
      EXPECT_GE(l.width, 1);
      EXPECT_GE(l.height, 1);
      EXPECT_LE(l.left + l.width, l.grid.width);
      EXPECT_LE(l.top + l.height, l.grid.height);
      EXPECT_GE(l.n_x, 0);
      EXPECT_GE(l.n_y, 0);
      EXPECT_LE(l.x + l.n_x, l.grid.width / kSide * kRowsPerSide);
      EXPECT_LE(l.y + l.n_y, l.grid.height / kSide * kRowsPerSide);
    }
  }
}

}  // namespace
}  // namespace weir
