// SPDX-License-Identifier: Apache-2.0
#include "serve/thread_book.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weir {
namespace {

TEST(ThreadBook, FindsWhatASessionHasRead) {
  ThreadBook book;
  const std::vector<uint64_t> history = {1, 2, 3, 4};
  EXPECT_EQ(book.NumRead("a", history), 0u);
  book.Read("a", std::vector<uint64_t>{1, 2});
  book.Read("a", std::vector<uint64_t>{3});
  EXPECT_EQ(book.NumRead("a", history), 3u);
  EXPECT_EQ(book.NumRead("b", history), 0u);
  // A client that sends only what is new, or only the end of its history.
  EXPECT_EQ(book.NumRead("a", std::vector<uint64_t>{4}), 0u);
  EXPECT_EQ(book.NumRead("a", std::vector<uint64_t>{2, 3, 4}), 2u);
  EXPECT_EQ(book.NumRead("a", std::vector<uint64_t>{3, 4}), 1u);
  // One that changed something it had said.
  EXPECT_EQ(book.NumRead("a", std::vector<uint64_t>{1, 7, 3, 4}), 0u);
  book.Forget("a");
  EXPECT_EQ(book.NumRead("a", history), 0u);
}

TEST(ThreadBook, IsBounded) {
  ThreadBook book;
  const std::vector<uint64_t> many(3 * ThreadBook::kMaxMessages, 7);
  book.Read("long", many);
  EXPECT_EQ(book.NumRead("long", many), ThreadBook::kMaxMessages);
  for (size_t i = 0; i < ThreadBook::kMaxThreads; ++i) book.Read("s" + std::to_string(i), std::vector<uint64_t>{i});
  EXPECT_EQ(book.NumRead("long", many), 0u);  // the longest unused
  EXPECT_EQ(book.NumRead("s0", std::vector<uint64_t>{0}), 1u);

  const int64_t half = ThreadBook::kMaxResponseBytes / 2;
  EXPECT_TRUE(book.Put({"r0", "s", std::string(static_cast<size_t>(half), 'x')}).empty());
  EXPECT_TRUE(book.Put({"r1", "t", std::string(static_cast<size_t>(half) - 100, 'x')}).empty());
  // The session of the forgotten one has no other: it is to be ended.
  EXPECT_EQ(book.Put({"r2", "u", std::string(1000, 'x')}), std::vector<std::string>{"s"});
  EXPECT_FALSE(book.Find("r0").has_value());
  EXPECT_TRUE(book.Find("r1").has_value());
  std::vector<std::string> orphans;
  for (size_t i = 0; i < ThreadBook::kMaxResponses; ++i) {
    for (std::string& one : book.Put({"n" + std::to_string(i), "v", "{}"})) orphans.push_back(std::move(one));
  }
  EXPECT_EQ(orphans, (std::vector<std::string>{"t", "u"}));
  EXPECT_FALSE(book.Find("r2").has_value());
  EXPECT_TRUE(book.Find("n0").has_value());
}

TEST(ThreadBook, KnowsTheNewestResponseOfASession) {
  ThreadBook book;
  EXPECT_EQ(book.TakeOldestSession(), "");
  book.Put({"a1", "a", "{}"});
  book.Put({"b1", "b", "{}"});
  book.Put({"a2", "a", "{}"});
  EXPECT_FALSE(book.IsNewest(*book.Find("a1")));
  EXPECT_TRUE(book.IsNewest(*book.Find("a2")));
  EXPECT_EQ(book.NumSessions(), 2);
  book.Put({"c1", "c", "{}", /*owns=*/false});
  EXPECT_EQ(book.NumSessions(), 2);
  EXPECT_TRUE(book.Erase("b1"));
  EXPECT_FALSE(book.Erase("b1"));
  EXPECT_EQ(book.NumSessions(), 1);
  book.Put({"d1", "d", "{}"});
  EXPECT_EQ(book.TakeOldestSession(), "a");
  EXPECT_FALSE(book.Find("a2").has_value());
  book.Forget("d");
  EXPECT_FALSE(book.Find("d1").has_value());
  EXPECT_EQ(book.TakeOldestSession(), "");
}

TEST(ThreadBook, ASessionIsContinuedByOneAtATime) {
  ThreadBook book;
  book.Put({"a1", "a", "{}"});
  const ThreadBook::Response a1 = *book.Find("a1");
  EXPECT_TRUE(book.Claim(a1));
  EXPECT_FALSE(book.Claim(a1));
  EXPECT_FALSE(book.IsNewest(a1));
  book.Release("a", /*changed=*/false);
  EXPECT_TRUE(book.Claim(a1));
  book.Put({"a2", "a", "{}"});
  EXPECT_FALSE(book.Claim(a1));
  EXPECT_TRUE(book.Claim(*book.Find("a2")));
  book.Release("a", /*changed=*/true);
  EXPECT_FALSE(book.Claim(*book.Find("a2")));
  EXPECT_EQ(book.TakeOldestSession(), "a");  // it still takes memory
}

TEST(ThreadBook, ASessionInUseStays) {
  ThreadBook book;
  book.Begin("a");  // nothing came of it yet
  book.Put({"b1", "b", "{}"});
  book.Put({"c1", "c", "{}"});
  EXPECT_TRUE(book.Claim(*book.Find("b1")));
  EXPECT_EQ(book.NumSessions(), 3);
  EXPECT_EQ(book.TakeOldestSession(), "c");
  EXPECT_EQ(book.TakeOldestSession(), "");
  EXPECT_EQ(book.NumSessions(), 2);
}

TEST(ThreadBook, ABodyThatIsTooLargeForgetsNoOther) {
  ThreadBook book;
  book.Put({"a1", "a", "{}"});
  const std::string large(static_cast<size_t>(ThreadBook::kMaxResponseBytes), 'x');
  EXPECT_TRUE(book.Put({"b1", "b", large}).empty());
  EXPECT_TRUE(book.Find("a1").has_value());
  EXPECT_EQ(book.Find("b1")->body, "");
  EXPECT_TRUE(book.IsNewest(*book.Find("b1")));
}

TEST(ThreadBook, ForgetsWhatASessionsSystemMessageWas) {
  ThreadBook book;
  const std::vector<uint64_t> system = {7};
  book.Read(ThreadBook::SystemOf("a"), system);
  book.Forget("a");
  EXPECT_EQ(book.NumRead(ThreadBook::SystemOf("a"), system), 0u);
  // Looking counts as a use: the thread of a session that only answers is not the longest unused.
  book.Read("a", system);
  for (size_t i = 0; i < ThreadBook::kMaxThreads; ++i) {
    book.Read("s" + std::to_string(i), std::vector<uint64_t>{i});
    EXPECT_EQ(book.NumRead("a", system), 1u);
  }
}

}  // namespace
}  // namespace weir
