// SPDX-License-Identifier: Apache-2.0
#include "serve/trace_context.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace weir {
namespace {

const std::string kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContext, ReadsAndWritesTraceParent) {
  const auto context = ParseTraceParent(kParent);
  ASSERT_TRUE(context);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(IdText(context->trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(IdText(context->span_id), "00f067aa0ba902b7");
  EXPECT_EQ(TraceParentText(*context), kParent);
  const auto quiet = ParseTraceParent(kParent.substr(0, 53) + "00");
  ASSERT_TRUE(quiet);
  EXPECT_FALSE(quiet->sampled);
  // Other flags are not known, and a later version may have more fields.
  EXPECT_TRUE(ParseTraceParent(kParent.substr(0, 53) + "ff")->sampled);
  EXPECT_TRUE(ParseTraceParent("cc" + kParent.substr(2)));
  EXPECT_TRUE(ParseTraceParent("cc" + kParent.substr(2) + "-more"));
  EXPECT_TRUE(ParseTraceParent(" " + kParent + "\t"));
}

TEST(TraceContext, IgnoresWhatIsInvalid) {
  const std::vector<std::string> all = {"",
                                        "00",
                                        kParent.substr(0, 54),
                                        kParent + "0",
                                        kParent + "-01",
                                        "cc" + kParent.substr(2) + "more",
                                        "ff" + kParent.substr(2),
                                        "0G" + kParent.substr(2),
                                        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",  // capital letters
                                        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                                        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                                        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                                        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0x",
                                        std::string("00-4bf92f3577b34da6a3ce929d0e0e473\0-00f067aa0ba902b7-01", 55),
                                        std::string(1 << 16, 'a')};
  for (const std::string& bad : all) EXPECT_FALSE(ParseTraceParent(bad)) << bad.substr(0, 80);
}

TEST(TraceContext, KeepsAValidTraceState) {
  EXPECT_EQ(ParseTraceState("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
  EXPECT_EQ(ParseTraceState(" a=1 ,\t,b=2 , "), "a=1,b=2");
  EXPECT_EQ(ParseTraceState("fw529a3039@dt=FfkA a"), "fw529a3039@dt=FfkA a");
  for (const char* bad : {"a", "A=1", "a=", "=1", "a=1,a=2", "a=1=2", "a@b@c=1", "a@=1", "a=\x01", "a b=1"}) {
    EXPECT_EQ(ParseTraceState(bad), "") << bad;
  }
  std::string many;
  for (int i = 0; i < 32; ++i) many += "k" + std::to_string(i) + "=v,";
  EXPECT_NE(ParseTraceState(many), "");
  EXPECT_EQ(ParseTraceState(many + "one_more=v"), "");
  // What is too long loses its end, in whole members.
  const std::string cut =
      ParseTraceState("a=" + std::string(256, 'x') + ",b=" + std::string(200, 'y') + ",c=" + std::string(200, 'z'));
  EXPECT_LE(cut.size(), 512u);
  EXPECT_EQ(cut.find('z'), cut.npos);
  EXPECT_NE(cut.find('y'), cut.npos);
  EXPECT_EQ(ParseTraceState("a=" + std::string(1 << 16, 'x')), "");
}

TEST(TraceContext, SamplesAShareByTheTraceId) {
  int n = 0;
  std::set<std::string> ids;
  for (int i = 0; i < 4000; ++i) {
    const TraceContext one = NewTrace();
    ids.insert(IdText(one.trace_id) + IdText(one.span_id));
    n += InSample(one.trace_id, 0.25);
    EXPECT_TRUE(InSample(one.trace_id, 1));
    EXPECT_FALSE(InSample(one.trace_id, 0));
    if (InSample(one.trace_id, 0.25)) EXPECT_TRUE(InSample(one.trace_id, 0.5));
  }
  EXPECT_EQ(ids.size(), 4000u);
  EXPECT_NEAR(n, 1000, 150);  // 5.5 standard deviations
}

}  // namespace
}  // namespace weir
