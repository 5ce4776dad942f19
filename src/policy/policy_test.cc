// SPDX-License-Identifier: Apache-2.0
#include "policy/policy.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace weir {
namespace {

std::vector<SlotMeta> Slots(int32_t n, std::initializer_list<int32_t> pinned = {}) {
  std::vector<SlotMeta> out(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) out[i].seq = i;
  for (int32_t slot : pinned) out[slot].pinned = true;
  return out;
}

KeepSet HeadAndTail(const std::vector<SlotMeta>& slots, int32_t head, int32_t keep) {
  KeepSet out;
  KeepHeadAndTail(slots, head, keep, &out);
  return out;
}

TEST(KeepHeadAndTail, KeepsSinksAndTheNewest) {
  EXPECT_EQ(HeadAndTail(Slots(10), 2, 5), (KeepSet{0, 1, 7, 8, 9}));
  EXPECT_EQ(HeadAndTail(Slots(10), 0, 3), (KeepSet{7, 8, 9}));
  EXPECT_EQ(HeadAndTail(Slots(10), 4, 10), (KeepSet{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(HeadAndTail(Slots(3), 4, 10), (KeepSet{0, 1, 2}));
  EXPECT_EQ(HeadAndTail(Slots(10), 4, 2), (KeepSet{0, 9}));
  EXPECT_EQ(HeadAndTail(Slots(10), 4, 0), KeepSet{});
}

TEST(KeepHeadAndTail, PinnedSlotsStayAndCount) {
  EXPECT_EQ(HeadAndTail(Slots(10, {3, 5}), 1, 5), (KeepSet{0, 3, 5, 8, 9}));
  EXPECT_EQ(HeadAndTail(Slots(10, {0, 1}), 2, 4), (KeepSet{0, 1, 8, 9}));
  EXPECT_EQ(HeadAndTail(Slots(10, {4}), 4, 1), (KeepSet{4}));
  EXPECT_EQ(HeadAndTail(Slots(6, {5}), 0, 2), (KeepSet{4, 5}));
}

TEST(PolicyTable, NamesAreSortedUniqueAndFound) {
  std::string last;
  for (const PolicyInfo* info : AllPolicyInfos()) {
    EXPECT_LT(last, info->name);
    last = info->name;
    EXPECT_EQ(FindPolicy(info->name), info);
    EXPECT_NE(std::string(info->summary), "");
  }
  for (const char* name : {"full", "window", "streaming_llm"}) EXPECT_NE(FindPolicy(name), nullptr) << name;
  EXPECT_EQ(FindPolicy("nothing"), nullptr);
}

TEST(PolicySpec, ReadsOptionsAndRefusesNonsense) {
  auto spec = ParsePolicySpec("streaming_llm:sinks=8");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->options.Int("sinks"), 8);
  EXPECT_EQ(spec->text, "streaming_llm:sinks=8,step=0");
  EXPECT_EQ(ParsePolicySpec("full")->text, "full");
  EXPECT_EQ(ParsePolicySpec("streaming").status().code(), StatusCode::kNotFound);
  for (const char* bad : {"streaming_llm:sink=8", "streaming_llm:sinks", "streaming_llm:sinks=",
                          "streaming_llm:sinks=1.5", "streaming_llm:sinks=-1", "streaming_llm:sinks=nan",
                          "streaming_llm:sinks=8x", "full:a=1", "h2o:share=1.01", "h2o:recent=-2"}) {
    EXPECT_EQ(ParsePolicySpec(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(PolicySpec, ReadsTexts) {
  auto spec = ParsePolicySpec("infinipot:catalyst=\"Say \\\"what\\\", a\\\\b\\nand why\",alpha=0.25,rows=max");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->options.Text("catalyst"), "Say \"what\", a\\b\nand why");
  EXPECT_EQ(spec->options.Number("alpha"), 0.25);
  EXPECT_EQ(spec->options.Text("rows"), "max");
  EXPECT_EQ(spec->options.Text("reduce"), "mean");
  spec = ParsePolicySpec("infinipot:catalyst=What matters? It's {question}: a\\b,alpha=0");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->options.Text("catalyst"), "What matters? It's {question}: a\\b");
  for (const char* bad :
       {"infinipot:catalyst=", "infinipot:catalyst=\"a", "infinipot:catalyst=\"a\\", "infinipot:catalyst=\"a\\x\"",
        "infinipot:catalyst=\"a\"b", "infinipot:rows=mean", "infinipot:rows=", "infinipot:rows=sum|max",
        "infinipot:alpha=\"0.5\"", "infinipot:alpha=0.5,alpha=0.5", "infinipot:alpha=0.5,", "infinipot:,alpha=0.5",
        "infinipot:", "infinipot:=1", "infinipot:alpha", "infinipot:alpha,rows=max", "full:"}) {
    EXPECT_EQ(ParsePolicySpec(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(ParsePolicySpec(std::string_view("infinipot:catalyst=a\0b", 22)).ok());
}

// Text written to traces and saved sessions must mean the same when it is read again.
TEST(PolicySpec, NormalisedTextReadsBackToItself) {
  std::vector<std::string> specs = {"h2o:share=0.1234567890123,recent=-1",
                                    "inf_mllm:b=1e-300",
                                    "inf_mllm:b=0.3333333333333333",
                                    "infinipot:catalyst=\"\"",
                                    "infinipot:catalyst= a ",
                                    "infinipot:catalyst=\"\\\\\\n,\"",
                                    "random:seed=9007199254740991",
                                    "sirllm:decay=-0"};
  for (const PolicyInfo* info : AllPolicyInfos()) specs.push_back(info->name);
  for (const std::string& text : specs) {
    auto spec = ParsePolicySpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    auto again = ParsePolicySpec(spec->text);
    ASSERT_TRUE(again.ok()) << spec->text << ": " << again.status().message();
    EXPECT_EQ(again->text, spec->text);
    EXPECT_EQ(spec->text.find('\n'), std::string::npos);
    for (const PolicyOptionInfo& option : spec->info->options) {
      if (option.text != nullptr) {
        EXPECT_EQ(again->options.Text(option.key), spec->options.Text(option.key)) << spec->text;
      } else {
        EXPECT_EQ(again->options.Number(option.key), spec->options.Number(option.key)) << spec->text;
      }
    }
  }
}

TEST(PolicyTable, DefaultsAreWithinTheirRangesAndMakeAPolicy) {
  for (const PolicyInfo* info : AllPolicyInfos()) {
    for (const PolicyOptionInfo& option : info->options) {
      if (option.text == nullptr) {
        EXPECT_GE(option.fallback, option.min) << info->name << " " << option.key;
        EXPECT_LE(option.fallback, option.max) << info->name << " " << option.key;
      }
    }
    auto policy = ParsePolicySpec(info->name)->Make();
    ASSERT_TRUE(policy.ok()) << info->name << ": " << policy.status().message();
    for (int32_t n_slots : {(*policy)->Needs().min_slots, 17, 1000, 1 << 26}) {
      for (int32_t n_coming : {1, n_slots / 2, n_slots}) {
        const int32_t target = (*policy)->TargetSlots(n_slots, n_coming);
        EXPECT_LE(target, n_slots - n_coming) << info->name;
        EXPECT_GE(target, std::min(0, n_slots - n_coming)) << info->name;
      }
    }
  }
}

// A share of the pot, of the kept slots or of attention is one of the whole: none of it to all of it.
TEST(PolicyTable, SharesEndAtTheWhole) {
  const std::set<std::string> no_shares = {
      "inf_mllm b", "keyformer tau", "keyformer tau_end", "streaming_vlm seconds", "weir b", "weir saddle", "weir z"};
  for (const PolicyInfo* info : AllPolicyInfos()) {
    for (const PolicyOptionInfo& option : info->options) {
      const std::string name = std::string(info->name) + " " + std::string(option.key);
      if (option.text != nullptr || option.integral || no_shares.contains(name)) continue;
      EXPECT_EQ(option.max, 1) << name;
      const bool some = std::string(option.key) == "ratio" || name == "infinipot_v recent";
      EXPECT_EQ(option.min, some ? 0.01 : 0) << name;
      const std::string spec = std::string(info->name) + ":" + std::string(option.key) + "=";
      EXPECT_TRUE(ParsePolicySpec(spec + "1").ok()) << name;
      EXPECT_FALSE(ParsePolicySpec(spec + "1.001").ok()) << name;
      EXPECT_FALSE(ParsePolicySpec(spec + "-0.001").ok()) << name;
    }
  }
}

// One slot for what is kept and one for what comes; sinks are kept beside it.
TEST(PolicyTable, SmallestPots) {
  for (const PolicyInfo* info : AllPolicyInfos()) {
    const PolicyNeeds needs = (*ParsePolicySpec(info->name)->Make())->Needs();
    if (!needs.evicts) continue;
    bool has_sinks = false;
    for (const PolicyOptionInfo& option : info->options) has_sinks |= std::string(option.key) == "sinks";
    EXPECT_EQ(needs.min_slots, 2 + (has_sinks ? ParsePolicySpec(info->name)->options.Int("sinks") : 0)) << info->name;
  }
}

TEST(StreamingLlm, FreesAStepWhileDecodingAndAChunkWhileReading) {
  auto policy = std::move(ParsePolicySpec("streaming_llm")->Make()).value();
  EXPECT_EQ(policy->TargetSlots(1024, 1), 960);
  EXPECT_EQ(policy->TargetSlots(1024, 256), 768);
  EXPECT_EQ(policy->TargetSlots(8, 4), 4);
  auto exact = std::move(ParsePolicySpec("streaming_llm:step=1")->Make()).value();
  EXPECT_EQ(exact->TargetSlots(1024, 1), 1023);
}

}  // namespace
}  // namespace weir
