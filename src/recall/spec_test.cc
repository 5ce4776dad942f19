// SPDX-License-Identifier: Apache-2.0
#include "recall/spec.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

TEST(RecallSpecTest, EverySelectorIsMadeByItsName) {
  ASSERT_FALSE(AllSelectorInfos().empty());
  for (const SelectorInfo* info : AllSelectorInfos()) {
    const Result<RecallSpec> spec = ParseRecallSpec(info->name, true);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    EXPECT_EQ(spec->info, info);
    EXPECT_NE(info->make(spec->options), nullptr);
    // The normalised text says everything, and reads back as itself.
    for (const OptionInfo& option : CommonRecallOptions()) {
      EXPECT_NE(spec->text.find(std::string(option.key) + "="), std::string::npos) << spec->text;
    }
    EXPECT_EQ(std::move(ParseRecallSpec(spec->text, true)).value().text, spec->text);
  }
}

TEST(RecallSpecTest, OptionsAreRead) {
  const RecallSpec spec = std::move(ParseRecallSpec("words:passages=5,gate=0.25,margin=0,answers=1")).value();
  EXPECT_EQ(spec.n_passages(), 5);
  EXPECT_EQ(spec.gate(), 0.25);
  EXPECT_EQ(spec.margin(), 0);
  EXPECT_TRUE(spec.answers());
  EXPECT_FALSE(std::move(ParseRecallSpec("words")).value().answers());
  EXPECT_EQ(std::move(ParseRecallSpec("off")).value().info, nullptr);
}

TEST(RecallSpecTest, WhatIsNotKnownIsNamed) {
  const auto error = [](const char* text, StatusCode code) {
    const Result<RecallSpec> spec = ParseRecallSpec(text);
    EXPECT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().code(), code) << text;
    return spec.status().message();
  };
  const std::string unknown = error("wrods", StatusCode::kNotFound);
  EXPECT_NE(unknown.find("wrods"), std::string::npos) << unknown;
  for (const SelectorInfo* info : AllSelectorInfos()) {
    EXPECT_EQ(unknown.find(info->name) == std::string::npos, info->exam) << unknown;
  }
  EXPECT_NE(error("words:pasages=2", StatusCode::kInvalidArgument).find("passages"), std::string::npos);
  for (const char* text : {"words:passages=0", "words:passages=2.5", "words:gate=1.5", "words:gate=x", "words:gate",
                           "words:margin=-0.1", "words:answers=2"}) {
    error(text, StatusCode::kInvalidArgument);
  }
  for (const char* text : {"", ":", "words ", "off:passages=2"}) error(text, StatusCode::kNotFound);
}

TEST(RecallSpecTest, WhatHasToKnowTheAnswerIsForExams) {
  const Result<RecallSpec> spec = ParseRecallSpec("oracle");
  EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(spec.status().message().find("weir eval"), std::string::npos) << spec.status().message();
  EXPECT_TRUE(ParseRecallSpec("oracle:passages=4", true).ok());
}

}  // namespace
}  // namespace weir
