// SPDX-License-Identifier: Apache-2.0
// Vision against the reference implementations that made the goldens of tests/golden/vision: preprocessing to less than
// one step of 8 bits, every named intermediate of an encoder to 1e-3.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include "media/media.h"
#include "support/build_paths.h"
#include "support/encoder.h"
#include "support/golden.h"
#include "support/picture.h"
#include "vision/encoder.h"

namespace weir {
namespace {

using testing::Golden;
using testing::Picture;
using testing::RelativeError;

std::string VisionDir() { return SourceDir() + "/tests/golden/vision/"; }

// FIT.FILTER.SIZE.PICTURE
struct Entry {
  ImageTransform transform;
  std::string picture;
};
Entry ParseEntry(const std::string& name) {
  std::istringstream parts(name);
  std::string fit, filter, size;
  Entry out;
  std::getline(parts, fit, '.');
  std::getline(parts, filter, '.');
  std::getline(parts, size, '.');
  std::getline(parts, out.picture);
  out.transform.fit = fit == "crop" ? Fit::kCrop : fit == "pad" ? Fit::kPad : Fit::kStretch;
  out.transform.resample = filter == "bicubic" ? Resample::kBicubic : Resample::kBilinear;
  out.transform.size = std::stoi(size);
  return out;
}

// Both are normalised: brought back to 0 .. 255, nothing may differ by as much as one step.
void ExpectSamePicture(const std::vector<float>& got, const testing::GoldenEntry& want,
                       const ImageTransform& transform) {
  ASSERT_EQ(got.size(), want.data.size());
  const size_t plane = got.size() / 3;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want.data[i]) * transform.std[i / plane] * 255);
  }
  EXPECT_LT(worst, 0.01) << "steps of 8 bits";
}

TEST(Preprocess, SyntheticPicturesOfOddSizes) {
  const Golden golden = testing::ReadGolden(VisionDir() + "preprocess.golden");
  ASSERT_GE(golden.size(), 60u);
  std::set<std::string> pictures;
  for (const auto& [name, want] : golden) {
    SCOPED_TRACE(name);
    const Entry entry = ParseEntry(name);
    pictures.insert(entry.picture);
    const size_t x = entry.picture.find('x');
    const int32_t width = std::stoi(entry.picture), height = std::stoi(entry.picture.substr(x + 1));
    const std::vector<uint8_t> rgb = Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    std::vector<float> out(static_cast<size_t>(3 * entry.transform.size * entry.transform.size));
    Ledger ledger;
    ASSERT_TRUE(Preprocess({rgb.data(), width, height}, entry.transform, ledger, out.data()).ok());
    EXPECT_EQ(ledger.used_bytes(), 0);
    EXPECT_EQ(ledger.used_bytes(MemTag::kVision), 0);
    ExpectSamePicture(out, want, entry.transform);
  }
  EXPECT_EQ(pictures.size(), 20u);
}

TEST(Preprocess, RealPictures) {
  const char* data = std::getenv("WEIR_DATA");
  if (data == nullptr || !std::filesystem::is_directory(std::filesystem::path(data) / "images")) {
    GTEST_SKIP() << "needs images/ in the folder that WEIR_DATA names";
  }
  const Golden golden = testing::ReadGolden(VisionDir() + "preprocess_files.golden");
  ASSERT_GE(golden.size(), 12u);
  for (const auto& [name, want] : golden) {
    SCOPED_TRACE(name);
    const Entry entry = ParseEntry(name);
    Ledger ledger;
    const auto image = DecodeImage((std::filesystem::path(data) / "images" / entry.picture).string(), ledger);
    if (image.status().code() == StatusCode::kNotFound) GTEST_SKIP() << image.status().message();
    ASSERT_TRUE(image.ok()) << image.status().message();
    std::vector<float> out(static_cast<size_t>(3 * entry.transform.size * entry.transform.size));
    ASSERT_TRUE(Preprocess({image->rgb(), image->width, image->height}, entry.transform, ledger, out.data()).ok());
    ExpectSamePicture(out, want, entry.transform);
  }
}

TEST(Preprocess, LongPicturesCostTheirPixels) {
  const std::vector<uint8_t> rgb = Picture(1, 60000);
  for (const Fit fit : {Fit::kCrop, Fit::kPad, Fit::kStretch}) {
    ImageTransform transform;
    transform.size = 8;
    transform.fit = fit;
    std::vector<float> out(3 * 64);
    Ledger ledger;
    ASSERT_TRUE(Preprocess({rgb.data(), 1, 60000}, transform, ledger, out.data()).ok());
    EXPECT_LT(ledger.peak_bytes(), 8 << 20);
    for (const float v : out) EXPECT_TRUE(std::isfinite(v));
  }
}

TEST(Preprocess, Refuses) {
  const std::vector<uint8_t> rgb = Picture(4, 4);
  std::vector<float> out(3 * 64);
  Ledger ledger;
  ImageTransform good;
  good.size = 8;
  const auto code = [&](const RgbView& image, const ImageTransform& t) {
    return Preprocess(image, t, ledger, out.data()).code();
  };
  EXPECT_EQ(code({rgb.data(), 4, 4}, good), StatusCode::kOk);
  EXPECT_EQ(code({rgb.data(), 0, 4}, good), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({nullptr, 4, 4}, good), StatusCode::kInvalidArgument);
  for (const int32_t size : {0, -1, kMaxImageSize + 1}) {
    ImageTransform bad = good;
    bad.size = size;
    EXPECT_EQ(code({rgb.data(), 4, 4}, bad), StatusCode::kInvalidArgument);
  }
  ImageTransform bad = good;
  bad.std[1] = 0;
  EXPECT_EQ(code({rgb.data(), 4, 4}, bad), StatusCode::kInvalidArgument);
  // Every reservation refused in turn.
  for (int n = 1; n <= 7; ++n) {
    Ledger tight;
    tight.FailNth(n);
    EXPECT_EQ(Preprocess({rgb.data(), 4, 4}, good, tight, out.data()).code(), StatusCode::kOverBudget) << n;
    EXPECT_EQ(tight.used_bytes(), 0);
  }
}

struct Loaded {
  Ledger ledger;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Encoder> encoder;
};

std::unique_ptr<Loaded> LoadTiny(std::unique_ptr<Backend> backend) {
  auto out = std::make_unique<Loaded>();
  out->backend = std::move(backend);
  auto file = GgufFile::Open(VisionDir() + "clip.gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return nullptr;
  auto encoder = LoadEncoder(**file, *out->backend, out->ledger);
  EXPECT_TRUE(encoder.ok()) << encoder.status().message();
  if (!encoder.ok()) return nullptr;
  out->encoder = std::move(encoder).value();
  return out;
}

std::vector<float> Encode(Loaded& m, const std::vector<float>& pixels, const VisionObserver* observer = nullptr) {
  const EncoderConfig& config = m.encoder->config();
  auto workspace = std::move(HostBuffer::Allocate(m.ledger, MemTag::kVision, m.encoder->WorkspaceBytes())).value();
  std::vector<float> out(static_cast<size_t>(config.n_rows) * static_cast<size_t>(config.n_embd));
  m.encoder->Encode({pixels.data(), out.data(), workspace.data(), observer});
  return out;
}

TEST(Clip, EveryIntermediateMatchesTheReference) {
  const Golden golden = testing::ReadGolden(VisionDir() + "clip.golden");
  ASSERT_TRUE(golden.contains("mm.2"));
  for (const char* device : {"ref", "cpu"}) {
    SCOPED_TRACE(device);
    auto m = LoadTiny(std::string(device) == "ref" ? MakeRefBackend() : MakeCpuBackend(2));
    ASSERT_NE(m, nullptr);
    testing::ExpectOffered(
        golden, "mm.2", [&](const VisionObserver* observer) { return Encode(*m, golden.at("pixels").data, observer); });
  }
}

// What a pruner may see: the patches' rows before their projection.
TEST(Clip, TellsItsRows) {
  struct Rows : SignalSink {
    std::vector<float> values;
    bool Wants(SignalKind kind, int32_t) const override { return kind == SignalKind::kOutputs; }
    void Take(const Signal& s) override { values.assign(s.values, s.values + s.shape.n_rows * s.shape.n_cols); }
  };
  const Golden golden = testing::ReadGolden(VisionDir() + "clip.golden");
  auto m = LoadTiny(MakeCpuBackend(2));
  ASSERT_NE(m, nullptr);
  auto workspace = std::move(HostBuffer::Allocate(m->ledger, MemTag::kVision, m->encoder->WorkspaceBytes())).value();
  std::vector<float> out(golden.at("mm.2").data.size());
  Rows rows;
  m->encoder->Encode({golden.at("pixels").data.data(), out.data(), workspace.data(), nullptr, &rows});
  EXPECT_EQ(out, Encode(*m, golden.at("pixels").data)) << "looking changes nothing";
  const auto& last = golden.at("v.blk.2.out");  // the class token's row first
  ASSERT_EQ(rows.values.size(), last.data.size() - static_cast<size_t>(last.cols));
  EXPECT_LT(RelativeError(rows.values.data(), last.data.data() + last.cols, rows.values.size()), 1e-4);
  EXPECT_EQ(m->encoder->ShapeOf(SignalKind::kOutputs).n_rows, 25);
  EXPECT_EQ(m->encoder->ShapeOf(SignalKind::kQueryCross).n_layers, 0);
}

TEST(Clip, ThreadCountChangesNothing) {
  const Golden golden = testing::ReadGolden(VisionDir() + "clip.golden");
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 4}) {
    auto m = LoadTiny(MakeCpuBackend(threads));
    ASSERT_NE(m, nullptr);
    const std::vector<float> rows = Encode(*m, golden.at("pixels").data);
    if (first.empty()) first = rows;
    EXPECT_EQ(first, rows) << threads << " threads";
  }
}

TEST(Clip, WritesOnlyIntoItsWorkspace) {
  const Golden golden = testing::ReadGolden(VisionDir() + "clip.golden");
  auto m = LoadTiny(MakeCpuBackend(2));
  ASSERT_NE(m, nullptr);
  const int64_t bytes = m->encoder->WorkspaceBytes();
  std::vector<uint8_t> memory(static_cast<size_t>(bytes) + 128, 0xa5);
  uint8_t* workspace = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  std::vector<float> out(golden.at("mm.2").data.size());
  m->encoder->Encode({golden.at("pixels").data.data(), out.data(), workspace, nullptr});
  for (const uint8_t* p = workspace + bytes; p < memory.data() + memory.size(); ++p) ASSERT_EQ(*p, 0xa5);
}

TEST(ImageEncoder, PixelsInRowsOut) {
  auto m = LoadTiny(MakeCpuBackend(2));
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->encoder->config().n_rows, 25);
  EXPECT_EQ(m->encoder->config().n_embd, 48);
  EXPECT_EQ(m->encoder->config().transform.fit, Fit::kCrop) << "as its processor does";
  Ledger ledger;
  {
    auto images = std::move(ImageEncoder::Make(*m->encoder, ledger)).value();
    const int64_t fixed = ledger.used_bytes(MemTag::kVision);
    EXPECT_GT(fixed, m->encoder->WorkspaceBytes());
    const std::vector<uint8_t> rgb = Picture(90, 61);
    const auto rows = images->Encode({rgb.data(), 90, 61});
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    EXPECT_EQ(ledger.used_bytes(), fixed) << "a picture's own memory is given back";
    std::vector<float> pixels(3 * 37 * 37);
    ASSERT_TRUE(Preprocess({rgb.data(), 90, 61}, m->encoder->config().transform, ledger, pixels.data()).ok());
    EXPECT_EQ(Encode(*m, pixels), std::vector<float>(rows->begin(), rows->end()));
    EXPECT_EQ(images->Encode({rgb.data(), 0, 0}).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(ledger.used_bytes(), 0);
}

TEST(LoadEncoder, RefusesALanguageModel) {
  auto file = std::move(GgufFile::Open(testing::GoldenDir() + "llama.gguf")).value();
  auto backend = MakeRefBackend();
  Ledger ledger;
  EXPECT_EQ(LoadEncoder(*file, *backend, ledger).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger.used_bytes(), 0);
}

}  // namespace
}  // namespace weir
