// SPDX-License-Identifier: Apache-2.0
#include "serve/event_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <thread>
#include <utility>

namespace weir {
namespace {

constexpr std::chrono::milliseconds kNow{0}, kLong{20000};
Ledger ledger;

TEST(EventRing, AReaderGoesOnWhereItWas) {
  const auto made = EventRing::Make(ledger);
  ASSERT_TRUE(made.ok());
  EventRing& ring = **made;
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
  const auto made = EventRing::Make(ledger);
  ASSERT_TRUE(made.ok());
  EventRing& ring = **made;
  const auto n = static_cast<int64_t>(EventRing::kMost) + 10;
  for (int64_t id = 1; id <= n; ++id) ring.Push(id, "began", std::to_string(id));
  const auto event = ring.After(4, kNow);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->id, 11);
  EXPECT_EQ(event->n_missed, 6);
  EXPECT_EQ(ring.newest(), n);
}

TEST(EventRing, AReaderThatWaitsIsWoken) {
  const auto made = EventRing::Make(ledger);
  ASSERT_TRUE(made.ok());
  EventRing& ring = **made;
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
  const auto made = EventRing::Make(ledger), another = EventRing::Make(ledger);
  ASSERT_TRUE(made.ok() && another.ok());
  EventRing &ring = **made, &other = **another;
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

// Against a list of all that came: what is kept is its end, byte for byte, and as long as there is room for.
TEST(EventRing, AnySizesKeepToTheirRoom) {
  const auto made = EventRing::Make(ledger);
  ASSERT_TRUE(made.ok());
  EventRing& ring = **made;
  std::mt19937 random(5);
  std::deque<std::string> all;
  for (int64_t id = 1; id <= 4000; ++id) {
    const uint32_t kind = random() % 100;
    const size_t n = kind == 0   ? static_cast<size_t>(EventRing::kMostBytes) - 5 - random() % 3
                     : kind < 30 ? random() % 60000
                                 : random() % 500;
    all.emplace_back(n, static_cast<char>('a' + id % 26));
    ring.Push(id, "began", all.back());
    EXPECT_EQ(ring.newest(), id);
    int64_t at = 0, n_kept = 0, n_bytes = 0;
    while (const auto event = ring.After(at, kNow)) {
      at = event->id;
      ASSERT_EQ(event->json, all[static_cast<size_t>(at - 1)]);
      ASSERT_EQ(event->name, "began");
      ASSERT_TRUE(n_kept == 0 || event->n_missed == 0);
      ++n_kept;
      n_bytes += std::ssize(event->name) + std::ssize(event->json);
    }
    ASSERT_LE(n_bytes, EventRing::kMostBytes);
    ASSERT_EQ(at, id) << "at least the newest is there";
    ASSERT_LE(n_kept, static_cast<int64_t>(EventRing::kMost));
  }
  ring.Push(4001, "began", std::string(EventRing::kMostBytes, 'x'));
  ring.Push(4002, "ended", "{}");
  EXPECT_EQ(ring.After(4000, kNow)->id, 4002);
  EXPECT_EQ(ring.After(4000, kNow)->n_missed, 1) << "one that is too large for the ring";
}

TEST(EventRing, ItsBytesAreReserved) {
  Ledger own(EventRing::Bytes());
  auto ring = EventRing::Make(own);
  ASSERT_TRUE(ring.ok());
  EXPECT_EQ(own.used_bytes(), EventRing::Bytes());
  EXPECT_EQ(EventRing::Make(own).status().code(), StatusCode::kOverBudget);
  ring->reset();
  EXPECT_EQ(own.used_bytes(), 0);
}

}  // namespace
}  // namespace weir
