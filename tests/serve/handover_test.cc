// Sessions that move: a server is told to end, another one goes on.
#include <gtest/gtest.h>

#include <filesystem>
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
