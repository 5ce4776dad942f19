// Sessions that move: a server is told to end, another one goes on.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <thread>

#include "cli/process.h"
#include "serve/session_client.h"

namespace weir::testing {
namespace {

std::vector<std::string> Flags(const TempDir& folder, const std::string& node, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--pot", "96", "--snapshots", folder.path(), "--hand-over", "--node", node});
  return more;
}

TEST(Handover, TheOtherServerGoesOnWithTheSameBytes) {
  const TempDir folder;
  std::vector<std::string> want;
  {
    const ServerProcess alone({"--pot", "96"});
    Client client(alone);
    const std::string id = client.Create({{"policy", "h2o"}});
    client.Talk(id, "sea");
    want = client.Talk(id, "man");
  }
  ServerProcess one(Flags(folder, "one"));
  const ServerProcess two(Flags(folder, "two"));
  Client client(one), other(two);
  const std::string id = client.Create({{"policy", "h2o"}}), idle = client.Create();
  EXPECT_EQ(id.rfind("s-one-", 0), 0u) << id;
  client.Talk(id, "sea");
  EXPECT_EQ(two.Get(kSessions + "/" + id).status, 404);  // not while it lives elsewhere
  const Json before = client.State(id), idle_before = client.State(idle);
  EXPECT_EQ(one.Terminate(), 0);
  // Whoever comes first takes it; all of them find it there.
  std::vector<std::thread> asking;
  for (int i = 0; i < 4; ++i) {
    asking.emplace_back([&] { EXPECT_EQ(two.Get(kSessions + "/" + id).status, 200); });
  }
  for (std::thread& thread : asking) thread.join();
  Json after = other.State(id);
  for (const char* key : {"id", "policy", "pot", "seen", "kept", "selections"})
    EXPECT_EQ(after[key], before[key]) << key;
  EXPECT_EQ(other.Talk(id, "man"), want);
  EXPECT_EQ(other.State(idle)["seen"], idle_before["seen"]);
  EXPECT_EQ(two.Delete(kSessions + "/" + idle).status, 200);
  EXPECT_TRUE(std::filesystem::is_empty(folder.File("handover")));
}

TEST(Handover, AnAnswerEndsBeforeItsSessionMoves) {
  const TempDir folder;
  ServerProcess one(Flags(folder, "one"));
  const ServerProcess two(Flags(folder, "two"));
  Client client(one);
  const std::string id = client.Create();
  client.Append(id, Words(100, "sea"));
  HttpAnswer answer;
  std::thread asking([&] { answer = client.Do(id, "ask", Question("who?", {{"max_tokens", 1000}})); });
  while (client.State(id)["busy"] != true) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(one.Terminate(), 0);
  asking.join();
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["usage"]["completion_tokens"], 1000);
  EXPECT_EQ(Client(two).State(id)["seen"], answer.json()["weir"]["seen"]);
}

TEST(Handover, AnAnswerWithoutAnEndIsCutAndItsSessionMoves) {
  const TempDir folder;
  ServerProcess one(Flags(folder, "one", {"--drain", "1"}));
  const ServerProcess two(Flags(folder, "two"));
  Client client(one);
  const std::string id = client.Create();
  HttpAnswer answer;
  std::thread asking([&] { answer = client.Do(id, "ask", Question("who?", {{"max_tokens", 100000000}})); });
  while (client.State(id)["busy"] != true) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(one.Terminate(), 0);
  asking.join();
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_EQ(Client(two).Do(id, "ask", Question("who?")).status, 200);
}

// A request that came before the drain and reaches the session after it: another server has it, nobody lost it.
TEST(Handover, ALateRequestIsToldToAskAgain) {
  const TempDir folder;
  ServerProcess one(Flags(folder, "one", {"--drain", "2"}));
  Client client(one);
  const std::string id = client.Create();
  HttpAnswer answer;
  // So long that it is still being turned into tokens when the session goes.
  std::thread appending([&] { answer = client.Do(id, "append", {{"text", Words(1 << 20, "sea")}}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(one.Terminate(), 0);
  appending.join();
  // 0: it had not arrived whole.
  EXPECT_TRUE(answer.status == 503 || answer.status == 200 || answer.status == 0)
      << answer.status << " " << answer.body;
}

// Sessions are made until the very end: each that was promised is handed over.
TEST(Handover, NoSessionIsMadeTooLate) {
  const TempDir folder;
  ServerProcess one(Flags(folder, "one", {"--budget", "1GiB"}));
  std::mutex mutex;
  std::vector<std::string> made;
  std::vector<std::thread> making;
  for (int i = 0; i < 6; ++i) {
    making.emplace_back([&] {
      for (HttpAnswer answer; (answer = one.Post(kSessions, {{"pot", 32}})).status == 201;) {
        const std::lock_guard<std::mutex> lock(mutex);
        made.push_back(answer.json()["id"]);
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(one.Terminate(), 0);
  for (std::thread& thread : making) thread.join();
  EXPECT_FALSE(made.empty());
  for (const std::string& id : made) {
    EXPECT_TRUE(std::filesystem::exists(folder.File("handover/" + id + ".weir"))) << id;
  }
}

TEST(Handover, WhatNobodyUsesWaitsInTheFolder) {
  const TempDir folder;
  const ServerProcess one(Flags(folder, "one", {"--session-idle", "1"})), two(Flags(folder, "two"));
  Client client(one);
  const std::string id = client.Create(), other = client.Create();
  const Json seen = client.Append(id, Words(100, "sea"))["seen"];
  for (int i = 0; i < 1200 && !one.Get(kSessions).json()["data"].empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(std::filesystem::exists(folder.File("handover/" + id + ".weir")));
  EXPECT_EQ(client.State(id)["seen"], seen);
  EXPECT_FALSE(std::filesystem::exists(folder.File("handover/" + id + ".weir")));
  EXPECT_EQ(two.Get(kSessions + "/" + other).status, 200);
}

TEST(Handover, WhatDoesNotFitStaysForOthers) {
  const TempDir folder;
  std::string id;
  {
    ServerProcess one(Flags(folder, "one"));
    id = Client(one).Create({{"pot", 400}});
    Client(one).Append(id, Words(100, "sea"));
    EXPECT_EQ(one.Terminate(), 0);
  }
  const ServerProcess probe({"--pot", "96", "--answer-pots", "1"});
  const Json props = probe.Get("/props").json();
  const int64_t little = props["used_bytes"].get<int64_t>() + 2 * props["session_bytes"].get<int64_t>();
  const ServerProcess two(Flags(folder, "two", {"--answer-pots", "1", "--budget", std::to_string(little)}));
  EXPECT_EQ(two.Get(kSessions + "/" + id).status, 429);
  const ServerProcess three(Flags(folder, "three"));
  EXPECT_EQ(three.Get(kSessions + "/" + id).status, 200);
  // A name that is no id opens no file.
  for (const char* name : {"s-../../x", "s-..%2fhandover", "x", "s-A"}) {
    EXPECT_EQ(three.Get(kSessions + "/" + name).status, 404) << name;
  }
}

}  // namespace
}  // namespace weir::testing
