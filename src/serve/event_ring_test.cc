// SPDX-License-Identifier: Apache-2.0
#include "serve/event_ring.h"

#include <gtest/gtest.h>

#include <thread>

namespace weir {
namespace {

constexpr std::chrono::milliseconds kNow{0}, kLong{20000};

TEST(EventRing, AReaderGoesOnWhereItWas) {
  EventRing ring;
  EXPECT_FALSE(ring.After(0, kNow));
  for (int64_t id = 1; id <= 3; ++id) ring.Push(id, "began", "{}");
  int64_t at = 0;
  for (int64_t id = 1; id <= 3; ++id) {
    const auto event = ring.After(at, kNow);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->id, id);
    EXPECT_EQ(event->n_missed, 0);
    at = event->id;
  }
  EXPECT_FALSE(ring.After(3, kNow));
  EXPECT_EQ(ring.After(1, kNow)->id, 2);
  EXPECT_EQ(ring.After(77, kNow)->id, 1) << "an id of another life";
}

TEST(EventRing, OldEventsGoAndAreCounted) {
  EventRing ring;
  const auto n = static_cast<int64_t>(EventRing::kMost) + 10;
  for (int64_t id = 1; id <= n; ++id) ring.Push(id, "began", std::to_string(id));
  const auto event = ring.After(4, kNow);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->id, 11);
  EXPECT_EQ(event->n_missed, 6);
  EXPECT_EQ(ring.newest(), n);
}

TEST(EventRing, AReaderThatWaitsIsWoken) {
  EventRing ring;
  std::optional<EventRing::Event> got;
  std::thread reader([&] { got = ring.After(0, kLong); });
  ring.Push(1, "ended", "x");
  reader.join();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->json, "x");
  std::thread other([&] { got = ring.After(1, kLong); });
  ring.Close();
  other.join();
  EXPECT_FALSE(got);
  EXPECT_TRUE(ring.closed());
}

TEST(EventRing, SavedAndRestored) {
  EventRing ring, other;
  ring.Push(1, "began", "{\"a\":1}");
  ring.Push(2, "ended", "{}");
  const auto saved = ParseJsonObject(JsonText({{"e", ring.Save()}}));
  ASSERT_TRUE(saved.ok());
  ASSERT_TRUE(other.Restore((*saved)["e"]));
  EXPECT_EQ(other.newest(), 2);
  EXPECT_EQ(other.After(0, kNow)->json, "{\"a\":1}");
  for (const Json& bad : {Json(3), Json{1}, Json{{1, "x"}}, Json{{0, "x", "y"}}, Json{{2, "x", "y"}, {1, "x", "y"}},
                          Json{{1, "x\ny", "z"}, {2, "a", "b"}}}) {
    EXPECT_FALSE(other.Restore(bad)) << bad;
  }
  EXPECT_EQ(other.newest(), 2);
}

}  // namespace
}  // namespace weir
