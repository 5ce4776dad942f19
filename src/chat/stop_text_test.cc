// SPDX-License-Identifier: Apache-2.0
#include "chat/stop_text.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace weir {
namespace {

TEST(StopText, HoldsBackWhatCouldBeginAStop) {
  StopText stop({"</end>", ""});
  std::string out;
  EXPECT_FALSE(stop.Push("a <", &out));
  EXPECT_EQ(out, "a ");
  EXPECT_FALSE(stop.Push("/e", &out));
  EXPECT_EQ(out, "a ");
  EXPECT_FALSE(stop.Push("<b", &out));
  EXPECT_EQ(out, "a </e<b");
  EXPECT_FALSE(stop.Push("</", &out));
  stop.Finish(&out);
  EXPECT_EQ(out, "a </e<b</");
}

TEST(StopText, TheFirstCompleteOneWins) {
  StopText stop({"abcd", "bc"});
  std::string out;
  EXPECT_FALSE(stop.Push("xab", &out));
  EXPECT_EQ(out, "x");
  EXPECT_TRUE(stop.Push("cd", &out));
  EXPECT_EQ(out, "xa");
}

// However a text is split, the output equals that of feeding it character by character and, for a single stop string,
// that of a search in the whole text.
TEST(StopText, AnyCutsGiveTheSame) {
  Rng rng(5);
  for (int trial = 0; trial < 3000; ++trial) {
    const auto word = [&](size_t least, size_t most) {
      std::string out(least + rng.Below(most - least + 1), 'a');
      for (char& c : out) c = static_cast<char>('a' + rng.Below(2));
      return out;
    };
    const std::string text = word(0, 30);
    std::vector<std::string> stops;
    for (size_t i = 0, n = 1 + rng.Below(3); i < n; ++i) stops.push_back(word(1, 5));
    const auto stopped = [&](size_t most, std::string* out) {
      StopText matcher(stops);
      for (size_t at = 0, n; at < text.size(); at += n) {
        n = 1 + rng.Below(most);
        if (matcher.Push(std::string_view(text).substr(at, n), out)) return true;
      }
      matcher.Finish(out);
      return false;
    };
    std::string out, by_letter;
    const bool is_stopped = stopped(4, &out);
    EXPECT_EQ(is_stopped, stopped(1, &by_letter));
    EXPECT_EQ(out, by_letter) << text << " trial " << trial;
    if (stops.size() > 1) continue;
    const size_t first = text.find(stops[0]);
    EXPECT_EQ(is_stopped, first != std::string::npos) << text << " " << stops[0];
    EXPECT_EQ(out, text.substr(0, first)) << text << " " << stops[0];
  }
}

}  // namespace
}  // namespace weir
