// SPDX-License-Identifier: Apache-2.0
// Qwen2-VL: pictures of any size, the encoder, and a language model whose positions have three axes, against the
// reference implementation that made tests/golden/vision/qwen2vl.golden (tools/golden/qwen2vl.py); every policy
// over a stream of words and pictures.
#include <gtest/gtest.h>

#include "engine/step_batch.h"
#include "support/pair.h"

namespace weir {
namespace {

using testing::ExpectSamePixels;
using testing::Golden;
using testing::GoldenEntry;
using testing::RelativeError;
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

TEST(Qwen2Vl, PicturesMatchTheReference) {
  EXPECT_EQ(testing::ForEachPicture(
                Reference(), "picture",
                [](const std::string&, const RgbView& image, const GoldenEntry& want) { ExpectPicture(image, want); }),
            8);
}

TEST(Qwen2Vl, RealPictures) { testing::ForEachFile("qwen2vl_files.golden", ExpectPicture); }

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
  testing::ExpectEncoder("qwen2vl_merger.gguf", Reference(), "mm.2");
}

TEST(Qwen2Vl, RowsMatchTheReference) { testing::ExpectRows("qwen2vl_merger.gguf", Reference(), 8); }

struct Pair : testing::Pair {
  explicit Pair(const std::string& policy, int32_t pot, const std::string& device = "cpu", DType kv = DType::kF32)
      : testing::Pair("qwen2vl.gguf", "qwen2vl_merger.gguf", {policy, pot, device, kv}) {}
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
  for (const char* policy : {"full", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      for (const int32_t pot : {256, 64}) {  // a pot of 64 is read in chunks of 16
        SCOPED_TRACE(std::string(policy) + " on " + device + ", pot " + std::to_string(pot));
        testing::ExpectTalk(Reference(), Pair(policy, pot, device));
      }
    }
  }
}

// Keys of other types than F32 are decoded some at a time before they are rotated to where they are.
TEST(Qwen2Vl, MoreKeysThanAreDecodedAtOnce) {
  const Pair plain("streaming_llm", 256), half("streaming_llm", 256, "cpu", DType::kF16);
  const std::vector<int32_t> tokens = testing::RandomTokens(150, plain.model->model().config().n_vocab);
  for (const Pair* pair : {&plain, &half}) {
    pair->Show(60, 40);
    pair->Say(tokens);
  }
  const std::vector<float> want = testing::LogitsOf(*plain.session), got = testing::LogitsOf(*half.session);
  EXPECT_LT(RelativeError(got.data(), want.data(), got.size()), 1e-2);
}

// Each of several sessions at once has its own positions.
TEST(Qwen2Vl, SessionsThatWriteTogetherWriteAsAlone) {
  for (const char* policy : {"snapkv:positions=abs", "streaming_llm"}) {
    const Pair pair("streaming_llm", 64);
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = 64;
    std::vector<std::unique_ptr<Session>> alone, together;
    for (const size_t n : {20, 33, 41}) {
      const std::vector<int32_t> prompt = testing::RandomTokens(n, pair.model->model().config().n_vocab);
      for (auto* sessions : {&alone, &together}) {
        auto session = Session::Make(pair.model->model(), pair.model->backend(), options);
        ASSERT_TRUE(session.ok()) << session.status().message();
        sessions->push_back(std::move(session).value());
        ASSERT_TRUE(sessions->back()->Append(prompt).ok());
      }
    }
    Ledger ledger;
    auto made =
        StepBatch::Make(pair.model->model(), pair.model->backend(), StepBatch::ShapeFor(alone[0]->plan(), 4), ledger);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const std::unique_ptr<StepBatch> batch = std::move(made).value();
    for (const int32_t token : {5, 6, 7}) {
      std::vector<StepBatch::Step> steps;
      for (size_t i = 0; i < alone.size(); ++i) {
        Session::AppendOptions append;
        append.generated = true;
        ASSERT_TRUE(alone[i]->Append({&token, 1}, append).ok());
        steps.push_back({together[i].get(), token, 0, Status()});
      }
      batch->Append(steps);
      for (size_t i = 0; i < alone.size(); ++i) {
        ASSERT_TRUE(steps[i].status.ok()) << steps[i].status.message();
        EXPECT_EQ(testing::LogitsOf(*together[i]), testing::LogitsOf(*alone[i])) << policy << ", session " << i;
      }
    }
    EXPECT_GT(batch->n_shared(), 0);
  }
}

class Qwen2VlPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(Qwen2VlPolicies, AStreamOfPictures) {
  for (const DType kv : {DType::kF32, DType::kF16}) {
    testing::ExpectStream(Pair(GetParam(), 48, "cpu", kv), Pair(GetParam(), 48, "cpu", kv));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Qwen2VlPolicies, ::testing::ValuesIn(testing::EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
