// SPDX-License-Identifier: Apache-2.0
#include "serve/webhook_queue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "support/heap.h"

namespace weir {
namespace {

// An empty folder.
class WebhookQueueTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = ::testing::TempDir() + "webhooks_" + std::to_string(getpid()), path_ = folder_ + "/queue";
};

WebhookQueue::Event Event(int n, const std::string& session = "s-1", const std::string& target = "http://a") {
  return {
      .id = session + "-" + std::to_string(n), .session = session, .target = target, .made_s = 100 + n, .body = "{}"};
}

std::vector<std::string> Ids(const std::vector<WebhookQueue::Event>& events) {
  std::vector<std::string> out;
  for (const auto& event : events) out.push_back(event.id);
  return out;
}

std::string Bytes(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

WebhookQueue Opened(const std::string& path) {
  auto queue = WebhookQueue::Open(path);
  EXPECT_TRUE(queue.ok()) << queue.status().message();
  return *std::move(queue);
}

TEST_F(WebhookQueueTest, FirstInFirstOutForEveryTarget) {
  WebhookQueue queue = Opened("");
  for (int n = 1; n <= 4; ++n) EXPECT_EQ(queue.Push(Event(n, "s-1", n % 2 == 0 ? "http://a" : "http://b")), 0);
  EXPECT_EQ(queue.Push(Event(2)), 0);  // it waits already
  EXPECT_EQ(queue.size(), 4u);
  EXPECT_EQ(queue.Oldest("http://a")->id, "s-1-2");
  EXPECT_EQ(queue.Oldest("http://b")->id, "s-1-1");
  EXPECT_EQ(queue.Oldest("http://c"), nullptr);
  queue.Done("s-1-2");
  queue.Done("s-1-2");
  EXPECT_EQ(queue.Oldest("http://a")->id, "s-1-4");
  EXPECT_EQ(Ids(queue.Of("s-1")), (std::vector<std::string>{"s-1-1", "s-1-3", "s-1-4"}));
}

TEST_F(WebhookQueueTest, TheOldestGoWhereThereIsNoRoom) {
  WebhookQueue queue = Opened("");
  int64_t n_dropped = 0;
  for (size_t n = 1; n <= WebhookQueue::kMostEvents + 3; ++n) n_dropped += queue.Push(Event(static_cast<int>(n)));
  EXPECT_EQ(n_dropped, 3);
  EXPECT_EQ(queue.Oldest("http://a")->id, "s-1-4");
  WebhookQueue::Event large = Event(0, "s-2");
  large.body.assign(WebhookQueue::kMostBodyBytes + 1, 'x');
  EXPECT_EQ(queue.Push(large), 1) << "one that is too large goes itself";
  EXPECT_EQ(queue.size(), WebhookQueue::kMostEvents);
  large.body.pop_back();
  for (int n = 1; n <= 300; ++n) {
    large.id = Event(n, "s-2").id;
    queue.Push(large);
  }
  const std::vector<std::string> left = Ids(queue.Of("s-2"));
  EXPECT_EQ(queue.size(), left.size()) << "all of the others went";
  EXPECT_EQ(left.back(), "s-2-300");
  EXPECT_GT(left.size(), 240u);
}

TEST_F(WebhookQueueTest, MemoryStaysWithinItsBound) {
  for (const size_t n_body : {size_t{2}, size_t{900}, WebhookQueue::kMostBodyBytes}) {
    const int64_t before = testing::HeapInUse();
    WebhookQueue queue = Opened(path_);
    WebhookQueue::Event event = Event(0);
    for (int n = 0; n < 12000; ++n) {
      if (n_body > 1000 && n == 1000) break;
      event.id = Event(n).id;
      event.body.assign(n_body, '\x01');  // six bytes each in the journal
      queue.Push(event);
    }
    EXPECT_LE(testing::HeapInUse() - before, WebhookQueue::MemoryBytes()) << n_body;
    EXPECT_EQ(queue.trouble(), "");
    const size_t n_waiting = queue.size();
    WebhookQueue other = std::move(queue);
    {
      const WebhookQueue gone = std::move(other);  // its file is free again
    }
    EXPECT_EQ(Opened(path_).size(), n_waiting) << n_body;
    std::filesystem::remove(path_);
  }
}

TEST_F(WebhookQueueTest, WhatWaitsComesBack) {
  {
    WebhookQueue queue = Opened(path_);
    EXPECT_NE(WebhookQueue::Open(path_).status().message().find("in use by another server"), std::string::npos);
    for (int n = 1; n <= 5; ++n) queue.Push(Event(n));
    queue.Done("s-1-1");
    queue.Done("s-1-3");
  }
  WebhookQueue queue = Opened(path_);
  EXPECT_EQ(Ids(queue.Of("s-1")), (std::vector<std::string>{"s-1-2", "s-1-4", "s-1-5"}));
  EXPECT_EQ(queue.Oldest("http://a")->made_s, 102);
  EXPECT_EQ(queue.Oldest("http://a")->body, "{}");
  EXPECT_EQ(queue.trouble(), "");
}

TEST_F(WebhookQueueTest, ThatItWasTriedComesBack) {
  {
    WebhookQueue queue = Opened(path_);
    for (int n = 1; n <= 3; ++n) queue.Push(Event(n));
    EXPECT_EQ(queue.Try("s-1-1"), 1);
    EXPECT_EQ(queue.Try("s-1-1"), 2);
    EXPECT_EQ(queue.Try("s-1-9"), 0) << "it does not wait";
  }
  WebhookQueue queue = Opened(path_);
  EXPECT_EQ(queue.Try("s-1-1"), 2) << "an attempt that may have arrived";
  EXPECT_EQ(queue.Try("s-1-2"), 1);
  const auto moved = WebhookQueue::FromJson(WebhookQueue::ToJson(queue.Of("s-1")[0]));
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(moved->attempts, 2);
}

// A process that ends in the middle of a line, at any byte.
TEST_F(WebhookQueueTest, HalfALineIsNone) {
  {
    WebhookQueue queue = Opened(path_);
    queue.Push(Event(1));
    queue.Push(Event(2));
    queue.Done("s-1-1");
  }
  const std::string whole = Bytes(path_);
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    std::ofstream(path_, std::ios::trunc) << whole.substr(0, cut);
    WebhookQueue queue = Opened(path_);
    const auto n_lines = std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
    const std::vector<std::vector<std::string>> want = {{}, {"s-1-1"}, {"s-1-1", "s-1-2"}, {"s-1-2"}};
    EXPECT_EQ(Ids(queue.Of("s-1")), want[static_cast<size_t>(n_lines)]) << cut;
    queue.Push(Event(3));
    WebhookQueue moved = std::move(queue);
    EXPECT_EQ(moved.Of("s-1").back().id, "s-1-3");
    const std::string now = Bytes(path_);
    EXPECT_EQ(std::count(now.begin(), now.end(), '\n'), n_lines + 1) << now;
  }
}

TEST_F(WebhookQueueTest, TheJournalStaysSmall) {
  {
    WebhookQueue queue = Opened(path_);
    queue.Push(Event(0));
    for (int n = 1; n <= 4000; ++n) {
      WebhookQueue::Event event = Event(n);
      event.body.assign(1000, 'x');
      queue.Push(event);
      queue.Done(event.id);
    }
    EXPECT_EQ(queue.trouble(), "");
  }
  EXPECT_LT(std::filesystem::file_size(path_), size_t{2} << 20);
  EXPECT_EQ(Ids(Opened(path_).Of("s-1")), std::vector<std::string>{"s-1-0"});
}

TEST_F(WebhookQueueTest, FilesThatAreNoJournal) {
  for (const std::string& bad : {"not json\n", "[1]\n", "{}\n",
                                 R"({"done":3})"
                                 "\n",
                                 R"({"id":"a b","body":"x"})"
                                 "\n",
                                 R"({"id":"a","made_s":-1})"
                                 "\n",
                                 R"({"id":"a","more":1})"
                                 "\n",
                                 "a line without an end"}) {
    std::ofstream(path_, std::ios::trunc) << bad;
    EXPECT_EQ(WebhookQueue::Open(path_).status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(Bytes(path_), bad) << "a file of somebody else is left as it is";
  }
  std::filesystem::create_directory(folder_ + "/sub");
  EXPECT_FALSE(WebhookQueue::Open(folder_ + "/sub").ok());
  EXPECT_FALSE(WebhookQueue::Open(folder_ + "/no/such/folder").ok());
}

}  // namespace
}  // namespace weir
