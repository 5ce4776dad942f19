// SPDX-License-Identifier: Apache-2.0
// Qwen3.5: the encoder, and the pair, whose language model attends in some layers only, against the reference
// implementation that made tests/golden/vision/qwen35.golden (tools/golden/qwen35.py).
#include <gtest/gtest.h>

#include "support/pair.h"

namespace weir {
namespace {

const testing::Golden& Reference() {
  static const testing::Golden golden = testing::ReadGolden(testing::VisionDir() + "qwen35.golden");
  return golden;
}

testing::Pair PairOf(const std::string& policy, int32_t pot, const std::string& device = "cpu") {
  return {"qwen35_axes.gguf", "qwen35_merger.gguf", {policy, pot, device}};
}

TEST(Qwen35, EveryIntermediateMatchesTheReference) {
  testing::ExpectEncoder("qwen35_merger.gguf", Reference(), "mm.rows");
}

TEST(Qwen35, RowsMatchTheReference) { testing::ExpectRows("qwen35_merger.gguf", Reference(), 8); }

TEST(Qwen35, WordsAndPicturesMatchTheReference) {
  for (const char* policy : {"full", "streaming_llm"}) {
    for (const char* device : {"ref", "cpu"}) {
      for (const int32_t pot : {256, 64}) {
        SCOPED_TRACE(std::string(policy) + " on " + device + ", pot " + std::to_string(pot));
        testing::ExpectTalk(Reference(), PairOf(policy, pot, device));
      }
    }
  }
}

TEST(Qwen35, AStreamOfPictures) {
  for (const char* policy : {"weir", "streaming_vlm", "h2o"}) {
    testing::ExpectStream(PairOf(policy, 48), PairOf(policy, 48));
  }
}

}  // namespace
}  // namespace weir
