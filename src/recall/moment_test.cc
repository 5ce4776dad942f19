// SPDX-License-Identifier: Apache-2.0
#include "recall/moment.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

constexpr int64_t kNow = 600'000;  // ten minutes

// "t 125000 135000", "p 0 30000", or "none".
std::string Found(std::string_view question, int64_t now_ms = kNow) {
  const auto moment = FindMoment(question, now_ms);
  if (!moment) return "none";
  return std::string(moment->of_time ? "t " : "p ") + std::to_string(moment->begin) + " " + std::to_string(moment->end);
}

TEST(MomentTest, ClockTimes) {
  EXPECT_EQ(Found("What happened at 2:10?"), "t 125000 135000");
  EXPECT_EQ(Found("Was war um 1:00:03 zu sehen?"), "t 3598000 3608000");
  EXPECT_EQ(Found("What was there at 0:02"), "t 0 7000");
  EXPECT_EQ(Found("Who said 2:75?"), "none");  // no seconds
  EXPECT_EQ(Found("John 1:2:3:4"), "none");    // no time of day
  EXPECT_EQ(Found("the ratio is 99999999:10"), "none");
}

TEST(MomentTest, FirstLastAgoInto) {
  EXPECT_EQ(Found("What was there in the first minute?"), "t 0 60000");
  EXPECT_EQ(Found("Which colour came in the first 30 seconds?"), "t 0 30000");
  EXPECT_EQ(Found("What happened in the last two minutes?"), "t 480000 600001");
  EXPECT_EQ(Found("anything in the past hour"), "t 0 600001");
  EXPECT_EQ(Found("What did you see five minutes ago?"), "t 295000 305000");
  EXPECT_EQ(Found("What is seen 3 minutes into it?"), "t 175000 185000");
  EXPECT_EQ(Found("after 90 seconds, where is the ball?"), "t 85000 95000");
  EXPECT_EQ(Found("What is in minute 3?"), "t 180000 240000");
}

TEST(MomentTest, PartsOfTheStream) {
  EXPECT_EQ(Found("How does it start at the beginning?"), "p 0 30000");
  EXPECT_EQ(Found("And in the middle"), "p 485000 515000");
  EXPECT_EQ(Found("What happens at the end?"), "p 970000 1000001");
  EXPECT_EQ(Found("What is said at 34 %?"), "p 330000 350000");
  EXPECT_EQ(Found("at 250 percent"), "p 990000 1010000");
}

TEST(MomentTest, OtherNumbersNameNone) {
  for (const char* question :
       {"", "%", ":", "1:", ":30", "What is the order number 12:?", "Who was first?", "two men", "the last chapter",
        "at the end of the pier", "give me a second look", "99999999 minutes ago"}) {
    EXPECT_EQ(Found(question), "none") << question;
  }
}

}  // namespace
}  // namespace weir
