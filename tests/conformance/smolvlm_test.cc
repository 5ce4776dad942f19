// SPDX-License-Identifier: Apache-2.0
// SmolVLM: encoder, squares, words between them and the pair, against the reference implementation that made
// tests/golden/vision/smolvlm.golden (tools/golden/smolvlm.py).
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "engine/loaded_encoder.h"
#include "engine/picture_reader.h"
#include "media/media.h"
#include "support/encoder.h"
#include "support/picture.h"
#include "text/chat_template.h"
#include "vision/split.h"

namespace weir {
namespace {

using testing::ExpectSamePixels;
using testing::Golden;
using testing::RelativeError;
using testing::TinyEncoder;
using testing::VisionDir;

constexpr int32_t kSide = 36, kLongest = 108;

class SmolVlmTest : public ::testing::Test {
 protected:
  // Calls see(name, width, height, picture) for each entry KIND.WxH; gives how many there were.
  template <typename See>
  int ForEach(const std::string& kind, const See& see) const {
    int n = 0;
    for (const auto& [name, want] : golden_) {
      int width = 0, height = 0;
      if (std::sscanf(name.c_str(), (kind + ".%dx%d").c_str(), &width, &height) != 2) continue;
      SCOPED_TRACE(name);
      ++n;
      const std::vector<uint8_t> rgb = testing::Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
      see(want, std::to_string(width) + "x" + std::to_string(height), RgbView{rgb.data(), width, height});
    }
    return n;
  }
  static ImageTransform Transform(int32_t side, int32_t longest) {
    ImageTransform out;
    out.size = side;
    out.longest_side = longest;
    out.fit = Fit::kSplit;
    out.resample = Resample::kLanczos;
    for (int c = 0; c < 3; ++c) out.mean[c] = out.std[c] = 0.5f;
    return out;
  }
  // The squares of a picture, as ImageEncoder makes them.
  static void ExpectSquares(const RgbView& image, const ImageTransform& transform, const testing::GoldenEntry& want) {
    const int32_t side = transform.size;
    const SplitLayout layout = LayOutSquares(image.width, image.height, transform.longest_side, side);
    ASSERT_GT(layout.n_x, 0);
    ASSERT_EQ(want.rows, int64_t{3} * side * (layout.n_x * layout.n_y + 1)) << "another number of squares";
    Ledger ledger;
    std::vector<float> out(want.data.size());
    {
      auto first = std::move(ResizePicture(image, layout.first, transform.resample, ledger)).value();
      auto copy = std::move(ResizePicture(first.view(), layout.copy, transform.resample, ledger)).value();
      first = {};
      float* to = out.data();
      const size_t n = static_cast<size_t>(3) * static_cast<size_t>(side) * static_cast<size_t>(side);
      for (int32_t y = 0; y < layout.n_y; ++y) {
        for (int32_t x = 0; x < layout.n_x; ++x, to += n) {
          const Square square = {layout.copy.width, layout.copy.height, x * side, y * side};
          ASSERT_TRUE(PreprocessSquare(copy.view(), transform, square, ledger, to).ok());
        }
      }
      ImageTransform stretch = transform;
      stretch.fit = Fit::kStretch;
      ASSERT_TRUE(Preprocess(copy.view(), stretch, ledger, to).ok());
    }
    EXPECT_LE(ledger.peak_bytes(), PreprocessBytes(image.width, image.height, transform));
    EXPECT_EQ(ledger.used_bytes(), 0);
    ExpectSamePixels(out.data(), want, transform, static_cast<size_t>(side) * static_cast<size_t>(side));
  }

  const Golden golden_ = testing::ReadGolden(VisionDir() + "smolvlm.golden");
};

TEST_F(SmolVlmTest, EveryIntermediateMatchesTheReference) {
  testing::ExpectIntermediates(
      "idefics3.gguf", golden_, "mm.fc", [&](TinyEncoder& tiny, const VisionObserver* observer) {
        Encoder& encoder = *tiny.encoder;
        EXPECT_EQ(encoder.config().n_rows, 9);
        EXPECT_EQ(encoder.config().max_squares, 3);
        auto workspace =
            std::move(HostBuffer::Allocate(tiny.ledger, MemTag::kVision, encoder.WorkspaceBytes())).value();
        std::vector<float> rows(9 * static_cast<size_t>(encoder.config().n_embd));
        encoder.Encode({golden_.at("pixels").data.data(), rows.data(), workspace.data(), observer});
        return rows;
      });
}

TEST_F(SmolVlmTest, SquaresMatchTheReference) {
  EXPECT_GE(ForEach("squares", [&](const testing::GoldenEntry& want, const std::string&,
                                   const RgbView& image) { ExpectSquares(image, Transform(kSide, kLongest), want); }),
            3);
  // Looked at once, as frames are.
  EXPECT_EQ(ForEach("once",
                    [&](const testing::GoldenEntry& want, const std::string&, const RgbView& image) {
                      const ImageTransform transform = Transform(kSide, kLongest);
                      Ledger ledger;
                      std::vector<float> out(want.data.size());
                      ASSERT_TRUE(Preprocess(image, transform, ledger, out.data()).ok());
                      EXPECT_LE(ledger.peak_bytes(), PreprocessBytes(image.width, image.height, transform));
                      ExpectSamePixels(out.data(), want, transform, kSide * kSide);
                    }),
            8);
}

TEST_F(SmolVlmTest, SquaresOfRealPictures) {
  const char* data = std::getenv("WEIR_DATA");
  if (data == nullptr || !std::filesystem::is_directory(std::filesystem::path(data) / "images")) {
    GTEST_SKIP() << "needs images/ in the folder that WEIR_DATA names";
  }
  const Golden files = testing::ReadGolden(VisionDir() + "smolvlm_files.golden");
  ASSERT_GE(files.size(), 4u);
  for (const auto& [name, want] : files) {
    SCOPED_TRACE(name);
    Ledger ledger;
    const std::string file = name.substr(name.find('.') + 1);
    const auto image = DecodeImage((std::filesystem::path(data) / "images" / file).string(), ledger);
    if (image.status().code() == StatusCode::kNotFound) GTEST_SKIP() << image.status().message();
    ASSERT_TRUE(image.ok()) << image.status().message();
    ExpectSquares({image->rgb(), image->width, image->height}, Transform(20, 60), want);
  }
}

TEST_F(SmolVlmTest, LayoutsOfAnySizeFitTheirBounds) {
  for (const int32_t longest : {36, 107, 108, 111, 512}) {
    const int32_t most = MaxSquares(longest, kSide);
    for (int32_t width = 1; width < 3000; width = width * 3 / 2 + 1) {
      for (int32_t height = 1; height < 3000; height = height * 3 / 2 + 1) {
        const SplitLayout l = LayOutSquares(width, height, longest, kSide);
        EXPECT_GE(std::min(l.first.width, l.first.height), 1);
        EXPECT_EQ(l.copy.width % kSide + l.copy.height % kSide, 0);
        EXPECT_LE(std::max(l.n_x, l.n_y), most) << width << " x " << height << " to " << longest;
        if (l.n_x == 0) {
          EXPECT_EQ(l.copy.width * l.copy.height, kSide * kSide);
        }
      }
    }
  }
}

TEST_F(SmolVlmTest, RowsOfAllSquaresMatchTheReference) {
  TinyEncoder tiny("idefics3.gguf", MakeCpuBackend(2));
  ASSERT_NE(tiny.encoder, nullptr);
  Ledger ledger;
  auto images = std::move(ImageEncoder::Make(*tiny.encoder, ledger)).value();
  EXPECT_EQ(ledger.used_bytes(), ImageEncoder::Bytes(*tiny.encoder));
  EXPECT_EQ(ForEach("rows",
                    [&](const testing::GoldenEntry& want, const std::string&, const RgbView& image) {
                      const auto rows = images->Encode(image);
                      ASSERT_TRUE(rows.ok()) << rows.status().message();
                      ASSERT_EQ(rows->size(), want.data.size());
                      EXPECT_LE(want.rows, tiny.encoder->config().max_rows());
                      EXPECT_LT(RelativeError(rows->data(), want.data.data(), want.data.size()), 1e-3);
                      int64_t n_rows = 0;
                      for (const PicturePart& part : images->parts()) n_rows += part.n_rows;
                      EXPECT_EQ(n_rows, want.rows);
                    }),
            8);
  EXPECT_EQ(images->Encode({nullptr, 0, 0}).status().code(), StatusCode::kInvalidArgument);
}

// A chat turn about a picture: the same tokens in the same order, then the same logits.
TEST_F(SmolVlmTest, AConversationIsTheReferences) {
  LoadModelOptions load;
  load.path = VisionDir() + "smolvlm.gguf";
  load.n_threads = 2;
  auto model = std::move(LoadedModel::Load(load)).value();
  auto loaded = LoadedEncoder::Load(VisionDir() + "idefics3.gguf", *model);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  Encoder& encoder = (*loaded)->encoder();
  PictureRoom room;
  room.Include(400, 400);
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("full")).value();
  options.pot_slots = 512;
  options.k_type = options.v_type = DType::kF32;
  options.beside = std::move(PictureReader::Plan(encoder, room)).value();
  auto session = std::move(Session::Make(model->model(), model->backend(), options)).value();
  auto reader = std::move(PictureReader::Make(encoder, *session, room)).value();
  const Tokenizer& tokenizer = model->tokenizer();
  auto chat = ChatTemplate::ForFile(model->file(), tokenizer, "");
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(chat->name(), "smolvlm");
  const std::string mark = kPictureMark;
  std::vector<TextPiece> before, after;
  const auto turn = std::move(chat->Render({{"user", mark + "the man and the"}}, true)).value();
  for (const TextPiece& piece : turn) {
    if (piece.text.starts_with(mark)) {
      after.push_back({piece.text.substr(mark.size()), false});
    } else {
      (after.empty() ? before : after).push_back(piece);
    }
  }
  ASSERT_FALSE(after.empty());
  EXPECT_EQ(ForEach("ids",
                    [&](const testing::GoldenEntry& want, const std::string& size, const RgbView& image) {
                      session->Reset();
                      Session::AppendOptions append;
                      int64_t n_told = 0;
                      append.progress = [&](int64_t n_done) { n_told = n_done; };
                      ASSERT_TRUE(session->Append(tokenizer.EncodePieces(before, false)).ok());
                      const int64_t n_before = session->counters().seen;
                      const Status read = reader->ReadPixels(image, Modality::kImage, append);
                      ASSERT_TRUE(read.ok()) << read.message();
                      EXPECT_EQ(n_told, session->counters().seen - n_before) << "progress counts the words, too";
                      ASSERT_TRUE(session->Append(tokenizer.EncodePieces(after, false)).ok());
                      std::vector<float> ids;
                      for (const SlotMeta& slot : session->pot().meta(0))
                        ids.push_back(static_cast<float>(slot.token_id));
                      EXPECT_EQ(ids, want.data);
                      const auto logits = std::move(session->Logits()).value();
                      const testing::GoldenEntry& expected = golden_.at("logits." + size);
                      ASSERT_EQ(logits.size(), expected.data.size());
                      EXPECT_LT(RelativeError(logits.data(), expected.data.data(), logits.size()), 1e-3);
                      EXPECT_LE(session->ledger().peak_bytes(), session->plan().total_bytes);
                    }),
            8);
  // A frame of a video is looked at once, between its words.
  session->Reset();
  std::vector<float> frame(static_cast<size_t>(reader->n_prepared()), 0.25f);
  ASSERT_TRUE(reader->ReadPrepared(frame.data(), {}).ok());
  EXPECT_EQ(session->counters().by[static_cast<size_t>(Modality::kVideo)].seen, 9);
  EXPECT_EQ(session->counters().seen, 12);
}

TEST_F(SmolVlmTest, AVocabularyWithoutItsWordsIsRefused) {
  LoadModelOptions load;
  load.path = VisionDir() + "llava.gguf";
  auto model = std::move(LoadedModel::Load(load)).value();
  const auto loaded = LoadedEncoder::Load(VisionDir() + "idefics3.gguf", *model);
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(loaded.status().message().find("<fake_token_around_image>"), std::string::npos)
      << loaded.status().message();
}

}  // namespace
}  // namespace weir
