// SPDX-License-Identifier: Apache-2.0
#include "eval/policy_list.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

using List = std::vector<std::string>;

TEST(PolicyListTest, Splits) {
  EXPECT_EQ(SplitPolicyList("window"), (List{"window"}));
  EXPECT_EQ(SplitPolicyList("full,window,h2o"), (List{"full", "window", "h2o"}));
  EXPECT_EQ(SplitPolicyList("full;h2o:a=1,b=2;window"), (List{"full", "h2o:a=1,b=2", "window"}));
  EXPECT_EQ(SplitPolicyList("full,h2o:a=1,b=2,window,tova:c=3"), (List{"full", "h2o:a=1,b=2", "window", "tova:c=3"}));
  EXPECT_EQ(SplitPolicyList(";full;;"), (List{"full"}));
  EXPECT_EQ(SplitPolicyList(""), List());
}

TEST(PolicyListTest, QuotesHoldTogether) {
  EXPECT_EQ(SplitPolicyList(R"(infinipot:probe="a, b; c: \"d\", e=f",alpha=1;full)"),
            (List{R"(infinipot:probe="a, b; c: \"d\", e=f",alpha=1)", "full"}));
  // An unclosed quote is kept, so that the policy parser rejects it.
  EXPECT_EQ(SplitPolicyList(R"(window;infinipot:probe="a\)"), (List{"window", R"(infinipot:probe="a\)"}));
  EXPECT_EQ(SplitPolicyList("window;infinipot:probe=\"a\\"), (List{"window", "infinipot:probe=\"a\\"}));
}

}  // namespace
}  // namespace weir
