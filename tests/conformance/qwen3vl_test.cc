// SPDX-License-Identifier: Apache-2.0
// Qwen3-VL: the encoder with the rows of its earlier blocks, and the pair, against the reference implementation that
// made tests/golden/vision/qwen3vl.golden (tools/golden/qwen3vl.py); every policy over a stream of words and pictures.
#include <gtest/gtest.h>

#include "support/pair.h"

namespace weir {
namespace {

const testing::Golden& Reference() {
  static const testing::Golden golden = testing::ReadGolden(testing::VisionDir() + "qwen3vl.golden");
  return golden;
}

testing::Pair PairOf(const std::string& policy, int32_t pot, const std::string& device = "cpu",
                     DType kv = DType::kF32) {
  return {"qwen3vl_deepstack.gguf", "qwen3vl_merger.gguf", {policy, pot, device, kv}};
}

TEST(Qwen3Vl, EveryIntermediateMatchesTheReference) {
  testing::ExpectEncoder("qwen3vl_merger.gguf", Reference(), "mm.rows");
}

// Pictures with more and with fewer lines and columns than the table of positions has, one line among them.
TEST(Qwen3Vl, RowsMatchTheReference) { testing::ExpectRows("qwen3vl_merger.gguf", Reference(), 8); }

TEST(Qwen3Vl, ARowHoldsAPartForEachOfTheFirstLayers) {
  const testing::Pair pair = PairOf("full", 256);
  const ModelConfig& model = pair.model->model().config();
  EXPECT_EQ(model.n_deepstack, 2);
  EXPECT_EQ(model.row_width(), 3 * model.n_embd);
  EXPECT_EQ(pair.reader->config().n_embd, model.row_width());
  std::vector<float> rows(static_cast<size_t>(model.row_width()) * 2 - 1);
  EXPECT_EQ(pair.session->AppendEmbeddings(rows, Modality::kImage, {}).code(), StatusCode::kInvalidArgument);
}

TEST(Qwen3Vl, WordsAloneMatchTheReference) {
  const testing::GoldenEntry &ids = Reference().at("text.ids"), &want = Reference().at("text.logits");
  const testing::Pair pair = PairOf("streaming_llm", 64);
  for (int64_t i = 0; i < want.rows; ++i) {
    pair.Say({static_cast<int32_t>(ids.data[i])});
    const std::vector<float> logits = testing::LogitsOf(*pair.session);
    EXPECT_LT(testing::RelativeError(logits.data(), &want.data[i * want.cols], logits.size()), 1e-4) << "token " << i;
  }
}

// Chunks that cut through pictures, both rules for positions.
TEST(Qwen3Vl, WordsAndPicturesMatchTheReference) {
  for (const char* policy : {"full", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      for (const int32_t pot : {256, 64}) {
        SCOPED_TRACE(std::string(policy) + " on " + device + ", pot " + std::to_string(pot));
        testing::ExpectTalk(Reference(), PairOf(policy, pot, device));
      }
    }
  }
}

// The widths differ: rows of another number of parts.
TEST(Qwen3Vl, AnotherEncoderIsRefusedByName) {
  const testing::Pair pair = PairOf("full", 64);
  const auto loaded = LoadedEncoder::Load(testing::VisionDir() + "qwen25vl_merger.gguf", *pair.model);
  EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
  for (const char* file : {"qwen25vl_merger.gguf", "qwen3vl_deepstack.gguf"}) {
    EXPECT_NE(loaded.status().message().find(file), std::string::npos) << loaded.status().message();
  }
}

class Qwen3VlPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(Qwen3VlPolicies, AStreamOfPictures) {
  for (const DType kv : {DType::kF32, DType::kF16}) {
    testing::ExpectStream(PairOf(GetParam(), 48, "cpu", kv), PairOf(GetParam(), 48, "cpu", kv));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Qwen3VlPolicies, ::testing::ValuesIn(testing::EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
