#include "serve/stop_text.h"

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

// However a text is cut, what comes out is what a search of the whole text gives.
TEST(StopText, AnyCutsGiveTheSame) {
  Rng rng(5);
  for (int trial = 0; trial < 3000; ++trial) {
    const auto word = [&](size_t least, size_t most) {
      std::string out(least + rng.Below(most - least + 1), 'a');
      for (char& c : out) c = static_cast<char>('a' + rng.Below(2));
      return out;
    };
    const std::string text = word(0, 30), stop = word(1, 5);
    StopText matcher({stop});
    std::string out;
    bool stopped = false;
    for (size_t at = 0; at < text.size() && !stopped;) {
      const size_t n = 1 + rng.Below(4);
      stopped = matcher.Push(std::string_view(text).substr(at, n), &out);
      at += n;
    }
    if (!stopped) matcher.Finish(&out);
    const size_t first = text.find(stop);
    EXPECT_EQ(stopped, first != std::string::npos) << text << " " << stop;
    EXPECT_EQ(out, text.substr(0, first)) << text << " " << stop;
  }
}

}  // namespace
}  // namespace weir
