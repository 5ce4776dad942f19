// SPDX-License-Identifier: Apache-2.0
// Qwen2.5-VL: the encoder with its windows, and the pair, against the reference implementation that made
// tests/golden/vision/qwen25vl.golden (tools/golden/qwen25vl.py); every policy over a stream of words and pictures.
#include <gtest/gtest.h>

#include "support/pair.h"

namespace weir {
namespace {

const testing::Golden& Reference() {
  static const testing::Golden golden = testing::ReadGolden(testing::VisionDir() + "qwen25vl.golden");
  return golden;
}

testing::Pair PairOf(const std::string& policy, int32_t pot, const std::string& device = "cpu") {
  return {"qwen25vl.gguf", "qwen25vl_merger.gguf", {policy, pot, device}};
}

TEST(Qwen25Vl, EveryIntermediateMatchesTheReference) {
  testing::ExpectEncoder("qwen25vl_merger.gguf", Reference(), "mm.2");
}

// Pictures with windows of every shape, single ones and narrow ones among them.
TEST(Qwen25Vl, RowsMatchTheReference) { testing::ExpectRows("qwen25vl_merger.gguf", Reference(), 8); }

TEST(Qwen25Vl, WordsAndPicturesMatchTheReference) {
  for (const char* policy : {"full", "streaming_llm", "h2o"}) {
    for (const char* device : {"ref", "cpu"}) {
      for (const int32_t pot : {256, 64}) {
        SCOPED_TRACE(std::string(policy) + " on " + device + ", pot " + std::to_string(pot));
        testing::ExpectTalk(Reference(), PairOf(policy, pot, device));
      }
    }
  }
}

class Qwen25VlPolicies : public ::testing::TestWithParam<std::string> {};

TEST_P(Qwen25VlPolicies, AStreamOfPictures) { testing::ExpectStream(PairOf(GetParam(), 48), PairOf(GetParam(), 48)); }

INSTANTIATE_TEST_SUITE_P(All, Qwen25VlPolicies, ::testing::ValuesIn(testing::EvictingPolicies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weir
