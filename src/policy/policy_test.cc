#include "policy/policy.h"

#include <gtest/gtest.h>

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
  for (const char* bad :
       {"streaming_llm:sink=8", "streaming_llm:sinks", "streaming_llm:sinks=", "streaming_llm:sinks=1.5",
        "streaming_llm:sinks=-1", "streaming_llm:sinks=nan", "streaming_llm:sinks=8x", "full:a=1"}) {
    EXPECT_EQ(ParsePolicySpec(bad).status().code(), StatusCode::kInvalidArgument) << bad;
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
