// SPDX-License-Identifier: Apache-2.0
// Qwen2-VL: pictures of any size, the encoder, and a language model whose positions have three axes, against the
// reference implementation that made tests/golden/vision/qwen2vl.golden (tools/golden/qwen2vl.py); every policy
// over a stream of words and pictures.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "chat/probe.h"
#include "engine/loaded_encoder.h"
#include "engine/picture_reader.h"
#include "kv/axes.h"
#include "media/media.h"
#include "support/encoder.h"
#include "support/picture.h"
#include "support/tiny.h"

namespace weir {
namespace {

using testing::ExpectSamePixels;
using testing::Golden;
using testing::GoldenEntry;
using testing::RelativeError;
using testing::TinyEncoder;
using testing::VisionDir;

const Golden& Reference() {
  static const Golden golden = testing::ReadGolden(VisionDir() + "qwen2vl.golden");
  return golden;
}

ImageTransform Transform() {
  ImageTransform out;
  out.fit = Fit::kMultiples;
  out.factor = 10;
  out.min_pixels = 400;
  out.max_pixels = 4000;
  return out;
}

// As an encoder takes it: planes, and their size at the end.
std::vector<float> Input(const GoldenEntry& pixels, const ImageTransform& transform) {
  std::vector<float> out(static_cast<size_t>(InputFloats(transform)));
  std::copy(pixels.data.begin(), pixels.data.end(), out.begin());
  out[out.size() - 2] = static_cast<float>(pixels.cols);
  out[out.size() - 1] = static_cast<float>(pixels.rows / 3);
  return out;
}

void ExpectPicture(const RgbView& image, const GoldenEntry& want) {
  const ImageTransform transform = Transform();
  Ledger ledger;
  std::vector<float> out(static_cast<size_t>(InputFloats(transform)));
  ASSERT_TRUE(Preprocess(image, transform, ledger, out.data()).ok());
  EXPECT_LE(ledger.peak_bytes(), PreprocessBytes(image.width, image.height, transform));
  const PictureSize size = InputSize(out.data(), transform);
  ASSERT_EQ(size.width, want.cols);
  ASSERT_EQ(3 * size.height, want.rows);
  ExpectSamePixels(out.data(), want, transform, want.data.size() / 3);
}

template <typename See>
int ForEachPicture(const std::string& kind, const See& see) {
  int n = 0;
  for (const auto& [name, want] : Reference()) {
    int width = 0, height = 0;
    if (std::sscanf(name.c_str(), (kind + ".%dx%d").c_str(), &width, &height) != 2) continue;
    SCOPED_TRACE(name);
    ++n;
    const std::vector<uint8_t> rgb = testing::Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    see(RgbView{rgb.data(), width, height}, want);
  }
  return n;
}

TEST(Qwen2Vl, PicturesMatchTheReference) { EXPECT_EQ(ForEachPicture("picture", ExpectPicture), 8); }

TEST(Qwen2Vl, RealPictures) {
  const char* data = std::getenv("WEIR_DATA");
  if (data == nullptr || !std::filesystem::is_directory(std::filesystem::path(data) / "images")) {
    GTEST_SKIP() << "needs images/ in the folder that WEIR_DATA names";
  }
  const Golden files = testing::ReadGolden(VisionDir() + "qwen2vl_files.golden");
  ASSERT_GE(files.size(), 4u);
  for (const auto& [name, want] : files) {
    SCOPED_TRACE(name);
    Ledger ledger;
    const auto image =
        DecodeImage((std::filesystem::path(data) / "images" / name.substr(name.find('.') + 1)).string(), ledger);
    if (image.status().code() == StatusCode::kNotFound) GTEST_SKIP() << image.status().message();
    ASSERT_TRUE(image.ok()) << image.status().message();
    ExpectPicture({image->rgb(), image->width, image->height}, want);
  }
}

TEST(Qwen2Vl, SizesStayWithinTheirBounds) {
  ImageTransform transform = Transform();
  for (const auto& [factor, least, most] : {std::tuple{10, 400, 4000}, {28, 3136, 1003520}, {8, 64, 64}, {7, 1, 49}}) {
    transform.factor = factor;
    transform.min_pixels = least;
    transform.max_pixels = most;
    for (int32_t width = 1; width < 9000; width = width * 3 / 2 + 1) {
      for (int32_t height = 1; height < 9000; height = height * 3 / 2 + 1) {
        const auto size = MultiplesSize(width, height, transform);
        if (std::max(width, height) > 200 * std::min(width, height)) {
          EXPECT_EQ(size.status().code(), StatusCode::kUnsupported);
          continue;
        }
        ASSERT_TRUE(size.ok());
        EXPECT_GE(std::min(size->width, size->height), factor) << width << " x " << height;
        EXPECT_EQ(size->width % factor + size->height % factor, 0);
        EXPECT_LE(3 * int64_t{size->width} * size->height + 2, InputFloats(transform)) << width << " x " << height;
      }
    }
  }
}

TEST(Qwen2Vl, EveryIntermediateMatchesTheReference) {
  testing::ExpectIntermediates(
      "qwen2vl_merger.gguf", Reference(), "mm.2", [&](TinyEncoder& tiny, const VisionObserver* observer) {
        Encoder& encoder = *tiny.encoder;
        const std::vector<float> input = Input(Reference().at("pixels"), encoder.config().transform);
        EXPECT_EQ(encoder.RowsOf(input.data()).n, 15);
        EXPECT_EQ(encoder.RowsOf(input.data()).columns, 5);
        auto space = std::move(HostBuffer::Allocate(tiny.ledger, MemTag::kVision, encoder.WorkspaceBytes())).value();
        std::vector<float> rows(15 * static_cast<size_t>(encoder.config().n_embd));
        encoder.Encode({input.data(), rows.data(), space.data(), observer});
        return rows;
      });
}

TEST(Qwen2Vl, RowsMatchTheReference) {
  TinyEncoder tiny("qwen2vl_merger.gguf", MakeCpuBackend(2));
  ASSERT_NE(tiny.encoder, nullptr);
  Ledger ledger;
  auto images = std::move(ImageEncoder::Make(*tiny.encoder, ledger)).value();
  EXPECT_EQ(ForEachPicture("rows",
                           [&](const RgbView& image, const GoldenEntry& want) {
                             const auto rows = images->Encode(image);
                             ASSERT_TRUE(rows.ok()) << rows.status().message();
                             ASSERT_EQ(rows->size(), want.data.size());
                             EXPECT_LT(RelativeError(rows->data(), want.data.data(), want.data.size()), 1e-3);
                           }),
            8);
}

struct Pair {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<LoadedEncoder> encoder;
  std::unique_ptr<Session> session;
  std::unique_ptr<PictureReader> reader;

  Pair(const std::string& policy, int32_t pot, const std::string& device = "cpu", DType kv = DType::kF32) {
    LoadModelOptions load;
    load.path = VisionDir() + "qwen2vl.gguf";
    load.device = device;
    load.n_threads = 2;
    model = std::move(LoadedModel::Load(load)).value();
    encoder = std::move(LoadedEncoder::Load(VisionDir() + "qwen2vl_merger.gguf", *model)).value();
    PictureRoom room;
    room.Include(100, 100);
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = pot;
    options.k_type = options.v_type = kv;
    EXPECT_TRUE(PrepareProbe(model->tokenizer(), nullptr, "", &options).ok());
    options.beside = std::move(PictureReader::Plan(encoder->encoder(), room)).value();
    auto made = Session::Make(model->model(), model->backend(), options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    session = std::move(made).value();
    reader = std::move(PictureReader::Make(encoder->encoder(), *session, room)).value();
  }
  void Show(int32_t width, int32_t height) const {
    const std::vector<uint8_t> rgb = testing::Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    const Status read = reader->ReadPixels({rgb.data(), width, height}, Modality::kImage, {});
    ASSERT_TRUE(read.ok()) << read.message();
  }
  void Say(const std::vector<int32_t>& tokens) const { ASSERT_TRUE(session->Append(tokens).ok()); }
};

TEST(Qwen2Vl, WordsAloneMatchTheReference) {
  const GoldenEntry &ids = Reference().at("text.ids"), &want = Reference().at("text.logits");
  for (const char* policy : {"full", "streaming_llm"}) {
    for (const char* device : {"ref", "cpu"}) {
      const Pair pair(policy, 64, device);
      for (int64_t i = 0; i < want.rows; ++i) {
        pair.Say({static_cast<int32_t>(ids.data[i])});
        const std::vector<float> logits = testing::LogitsOf(*pair.session);
        EXPECT_LT(RelativeError(logits.data(), &want.data[i * want.cols], logits.size()), 1e-4)
            << policy << " on " << device << ", token " << i;
      }
    }
  }
}

// Both rules for positions, chunks that cut through pictures, both kinds of keys.
TEST(Qwen2Vl, WordsAndPicturesMatchTheReference) {
  const GoldenEntry &ids = Reference().at("talk.ids"), &want = Reference().at("talk.logits"),
                    &pictures = Reference().at("talk.pictures"), &pos = Reference().at("talk.pos");
  for (const char* policy : {"full", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      for (const int32_t pot : {256, 64}) {  // a pot of 64 is read in chunks of 16
        SCOPED_TRACE(std::string(policy) + " on " + device + ", pot " + std::to_string(pot));
        const Pair pair(policy, pot, device);
        int64_t row = 0, picture = 0;
        const auto check = [&] {
          const std::vector<float> logits = testing::LogitsOf(*pair.session);
          EXPECT_LT(RelativeError(logits.data(), &want.data[(row - 1) * want.cols], logits.size()), 1e-3)
              << "row " << row - 1;
        };
        while (row < want.rows) {
          const int32_t id = static_cast<int32_t>(ids.data[row]);
          if (row + 1 < want.rows && ids.data[row + 1] < 0) {
            // The words around a picture are the encoder's.
            pair.Show(static_cast<int32_t>(pictures.data[picture * 2]),
                      static_cast<int32_t>(pictures.data[picture * 2 + 1]));
            ++picture;
            row = pair.session->counters().seen;
          } else {
            pair.Say({id});
            ++row;
          }
          check();
        }
        EXPECT_EQ(row, want.rows);
        const std::span<const SlotMeta> held = pair.session->pot().meta(0);
        ASSERT_EQ(std::ssize(held), want.rows);
        std::vector<int32_t> got(held.size() * 4);
        HeldPositions(held, &got[held.size() * 3], got.data(), std::ssize(held));
        for (size_t i = 0; i < pos.data.size(); ++i) EXPECT_EQ(got[i], pos.data[i]) << "coordinate " << i;
      }
    }
  }
}

class Qwen2VlPolicies : public ::testing::TestWithParam<std::string> {};

// A pot far too small for what comes: never exceeded, coordinates always within it, the same bytes after a restore.
TEST_P(Qwen2VlPolicies, AStreamOfPictures) {
  for (const DType kv : {DType::kF32, DType::kF16}) {
    const Pair pair(GetParam(), 48, "cpu", kv), twin(GetParam(), 48, "cpu", kv);
    const auto walk = [](const Pair& p, int32_t from, int32_t to) {
      for (int32_t i = from; i < to; ++i) {
        p.Say({10 + i, 11 + 2 * i, 12 + 3 * i});
        p.Show(20 + 7 * i % 60, 30 + 11 * i % 50);
        const PotShape& shape = p.session->pot().shape();
        int64_t n_used = 0;
        for (int32_t head = 0; head < shape.n_heads_total(); ++head) {
          n_used += p.session->pot().n_used(head / shape.n_kv_heads, head % shape.n_kv_heads);
        }
        ASSERT_LE(n_used, shape.n_heads_total() * 48) << "heads may share what all of them have";
        for (int32_t group = 0; group < shape.n_groups(); ++group) {
          const std::span<const SlotMeta> held = p.session->pot().meta(group);
          std::vector<int32_t> pos(held.size() * 4);
          HeldPositions(held, &pos[held.size() * 3], pos.data(), std::ssize(held));
          for (size_t k = 0; k < 3 * held.size(); ++k) ASSERT_LT(pos[k], std::ssize(held));
        }
      }
    };
    walk(pair, 0, 6);
    std::vector<uint8_t> saved;
    ASSERT_TRUE(pair.session->Save(&saved).ok());
    ASSERT_TRUE(twin.session->Restore(saved).ok());
    walk(pair, 6, 9);
    walk(twin, 6, 9);
    EXPECT_EQ(testing::LogitsOf(*pair.session), testing::LogitsOf(*twin.session));
    for (const float x : testing::LogitsOf(*pair.session)) ASSERT_TRUE(std::isfinite(x));
    EXPECT_GT(pair.session->counters().dropped, 0);
    EXPECT_LE(pair.session->ledger().peak_bytes(), pair.session->plan().total_bytes);
    EXPECT_EQ(testing::Held(*pair.session), testing::Held(*twin.session));
  }
}

std::vector<std::string> EvictingPolicies() {
  std::vector<std::string> out;
  for (const PolicyInfo* info : AllPolicyInfos()) {
    if (std::string(info->name) != "full") out.push_back(info->name);
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, Qwen2VlPolicies, ::testing::ValuesIn(EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
