// SPDX-License-Identifier: Apache-2.0
// Handover: one server shuts down, another one continues its sessions.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/process.h"
#include "io/snapshot_test_util.h"
#include "serve/kills.h"
#include "serve/session_client.h"
#include "support/until.h"

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
  // The first request takes the session over; all of them find it.
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

// A conversation, a stored response and the context protocol name a session in their own ways.
TEST(Handover, SessionsMoveUnderTheirOtherNames) {
  const TempDir folder;
  ServerProcess one(Flags(folder, "one"));
  const ServerProcess two(Flags(folder, "two"));
  const auto ask = [](Json more) {
    more.update({{"input", "the man and the sea"}, {"max_output_tokens", 8}, {"ignore_eos", true}});
    return more;
  };
  const Json begin = {{"jsonrpc", "2.0"}, {"id", 1}, {"method", "initialize"}};
  const std::string shown = one.Post("/v1/conversations", Json::object()).json()["id"],
                    asked = one.Post("/v1/conversations", Json::object()).json()["id"],
                    agent = one.Post("/mcp", begin).session_id;
  EXPECT_EQ(one.Terminate(), 0);
  EXPECT_EQ(two.Get("/v1/conversations/" + shown).status, 200);
  const HttpAnswer answer = two.Post("/v1/responses", ask({{"conversation", {{"id", asked}}}}));
  EXPECT_EQ(answer.status, 200) << answer.body;
  const Json ping = {{"jsonrpc", "2.0"}, {"id", 2}, {"method", "ping"}};
  EXPECT_EQ(two.PostWith("/mcp", ping, {{"Mcp-Session-Id", agent}}).status, 200);
  for (const std::string& id : {shown, asked, agent}) EXPECT_EQ(two.Delete(kSessions + "/" + id).status, 200);
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
  EXPECT_TRUE(Until([&] { return client.State(id)["busy"] == true; }));
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
  EXPECT_TRUE(Until([&] { return client.State(id)["busy"] == true; }));
  EXPECT_EQ(one.Terminate(), 0);
  asking.join();
  EXPECT_EQ(answer.status, 409) << answer.body;
  EXPECT_EQ(answer.json()["error"]["code"], "cut_short");
  EXPECT_EQ(Client(two).Do(id, "ask", Question("who?")).status, 200);
}

// A proxy sends to another server what was answered with 503, and finds the session there. It must not do so with what
// was begun: the session would read it twice.
TEST(Handover, OnlyWhatWasNotBegunMayBeAskedAgain) {
  const TempDir folder;
  ServerProcess one(Flags(folder, "one", {"--drain", "1"}));
  Client client(one);
  const std::string id = client.Create(), file = folder.File("handover/" + id + ".weir");
  HttpAnswer begun, waiting;
  bool begun_moved = false, waiting_moved = false;
  std::thread appending([&] {
    begun = client.Do(id, "append", {{"text", Words(1 << 20, "sea")}});
    begun_moved = std::filesystem::exists(file);
  });
  EXPECT_TRUE(Until([&] { return client.State(id)["seen"] != 0; }));
  std::thread asking([&] {
    waiting = client.Do(id, "ask", Question("who?"));
    waiting_moved = std::filesystem::exists(file);
  });
  EXPECT_TRUE(Until([&] { return one.Get("/metrics").body.find("\nweir_jobs_waiting 1\n") != std::string::npos; }));
  EXPECT_EQ(one.Terminate(), 0);
  appending.join();
  asking.join();
  EXPECT_EQ(begun.status, 409) << begun.body;
  EXPECT_EQ(begun.json()["error"]["code"], "cut_short");
  EXPECT_TRUE(begun_moved);
  EXPECT_EQ(waiting.status, 503) << waiting.body;
  EXPECT_EQ(waiting.json()["error"]["code"], "draining");
  EXPECT_TRUE(waiting_moved);
  const ServerProcess two(Flags(folder, "two"));
  EXPECT_GT(Client(two).State(id)["seen"].get<int64_t>(), 0);
}

// A session that answers keeps no other one here.
TEST(Handover, IdleSessionsMoveWhileAnAnswerIsWritten) {
  for (const bool as_stream : {false, true}) {
    SCOPED_TRACE(as_stream);
    const TempDir folder;
    const auto moved = [&](const std::string& id) {
      return std::filesystem::exists(folder.File("handover/" + id + ".weir"));
    };
    ServerProcess one(Flags(folder, "one", {"--drain", "60"}));
    Client client(one);
    std::set<std::string> ids;
    for (int i = 0; i < 3; ++i) ids.insert(client.Create());
    const std::string busy = *ids.begin();  // looked at before the others
    const std::string body = Question("who?", {{"max_tokens", 100000000}, {"stream", as_stream}}).dump();
    const std::string ask = "POST " + kSessions + "/" + busy +
                            "/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(body.size()) +
                            "\r\n\r\n" + body;
    const int asking = one.Connect();
    ASSERT_EQ(write(asking, ask.data(), ask.size()), static_cast<ssize_t>(ask.size()));
    EXPECT_TRUE(Until([&] { return client.State(busy)["busy"] == true; }));
    std::thread ending([&] { EXPECT_EQ(one.Terminate(), 0); });
    for (const std::string& id : ids) {
      for (int i = 0; i < 1000 && id != busy && !moved(id); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      EXPECT_EQ(moved(id), id != busy) << id;
    }
    close(asking);
    ending.join();
    EXPECT_TRUE(moved(busy));
  }
}

// A request that arrived before the drain and reaches the session after it: another server has the session, and nothing
// is lost.
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
  // 0: it had not arrived whole. 409: it was begun all the same.
  EXPECT_TRUE(answer.status == 503 || answer.status == 200 || answer.status == 0 || answer.status == 409)
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
  EXPECT_TRUE(Until([&] {
    const std::lock_guard<std::mutex> lock(mutex);
    return !made.empty();
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(one.Terminate(), 0);
  for (std::thread& thread : making) thread.join();
  for (const std::string& id : made) {
    EXPECT_TRUE(std::filesystem::exists(folder.File("handover/" + id + ".weir"))) << id;
  }
}

// A slow takeover of one session does not delay requests for another one.
TEST(Handover, OthersDoNotWaitForASlowOne) {
  const TempDir folder;
  const ServerProcess server(Flags(folder, "one", {"--budget", "3GiB"}));
  Client client(server);
  const std::string here = client.Create(), slow = "s-two-00", file = folder.File("handover/" + slow + ".weir");
  // Zeros that are no session: known only when all of them were read.
  ASSERT_TRUE(WriteSnapshot(folder.File("zeros"), "{}", std::vector<uint8_t>(8)).ok());
  const int64_t n_bytes = int64_t{1} << 30;
  std::fstream zeros(folder.File("zeros"), std::ios::in | std::ios::out | std::ios::binary);
  zeros.seekp(24);
  zeros.write(reinterpret_cast<const char*>(&n_bytes), sizeof(n_bytes));
  zeros.close();
  std::filesystem::resize_file(folder.File("zeros"), 40 + 2 + static_cast<uintmax_t>(n_bytes));
  std::filesystem::rename(folder.File("zeros"), file);
  std::atomic<bool> ended{false};
  HttpAnswer taken;
  std::thread taking([&] {
    taken = server.Get(kSessions + "/" + slow);
    ended = true;
  });
  // Until it is being taken: it is of an earlier version, and gets a name for its state.
  const auto has_state = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(folder.File("handover"))) {
      if (entry.path().extension() == ".state") return true;
    }
    return false;
  };
  while (!ended && !has_state()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(server.Get(kSessions + "/" + here).status, 200);
  EXPECT_EQ(server.Get(kSessions + "/s-two-01").status, 404);
  EXPECT_FALSE(ended);
  taking.join();
  EXPECT_EQ(taken.status, 400) << taken.body;
  EXPECT_TRUE(std::filesystem::exists(file));
}

// SIGKILL at random moments of a takeover: another server gets the session, unless it ran already.
TEST(Handover, AServerKilledWhileItTakesASessionLeavesIt) {
  const TempDir folder;
  const std::vector<std::string> flags = {"--pot", "4096", "--snapshots", folder.path(), "--hand-over", "--lease", "1"};
  std::string id;
  Json seen;
  {
    ServerProcess one(flags);
    id = Client(one).Create();
    seen = Client(one).Append(id, Words(3500, "sea"))["seen"];
    ASSERT_EQ(one.Terminate(), 0);
  }
  const std::string left = folder.File("handover"), kept = folder.File("kept");
  std::filesystem::copy(left, kept);
  double take_us = 0;
  {
    const ServerProcess two(flags);
    const auto start = Clock::now();
    ASSERT_EQ(two.Get(kSessions + "/" + id).status, 200);
    take_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  Rng rng(7);
  int n_taken = 0;
  const int n_kills = NumberOfKills(12);
  int kill = 0;
  for (; kill < n_kills && !HasFailure(); ++kill) {
    SCOPED_TRACE(kill);
    std::filesystem::remove_all(left);
    std::filesystem::copy(kept, left);
    ServerProcess two(flags);
    std::thread asking([&] { (void)two.Get(kSessions + "/" + id); });
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(static_cast<uint64_t>(take_us) + 1)));
    two.Kill();
    asking.join();
    // It ran there, and the folder knows nothing of it any more.
    std::ifstream head(left + "/" + id + ".weir");
    const std::string text((std::istreambuf_iterator<char>(head)), {});
    if (text.empty() || text.find("\"gone\"") != std::string::npos) {
      ++n_taken;
      continue;
    }
    // Where it had been taken, the lease of the server that was killed has to end first.
    const ServerProcess three(flags);
    EXPECT_TRUE(Until([&] { return three.Get(kSessions + "/" + id).status != 503; }));
    EXPECT_EQ(Client(three).State(id)["seen"], seen);
  }
  std::printf("of %d kills %d came after the session was taken\n", kill, n_taken);
  EXPECT_LT(n_taken, n_kills);
}

TEST(Handover, WhatNobodyUsesWaitsInTheFolder) {
  const TempDir folder;
  const ServerProcess one(Flags(folder, "one", {"--session-idle", "3"})), two(Flags(folder, "two"));
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

// A request that meets its session on the way to the folder does not make the server forget what that has read.
TEST(Handover, AChatGoesOnOnceItsSessionIsBack) {
  const TempDir folder;
  const ServerProcess one(Flags(folder, "one", {"--session-idle", "1"}));
  const std::string id = Client(one).Create();
  Json said = {{{"role", "user"}, {"content", "the man and the sea"}}};
  const auto ask = [&] {
    const Json body = {{"messages", said}, {"max_tokens", 8}, {"ignore_eos", true}, {"temperature", 0}};
    return one.PostWith("/v1/chat/completions", body, {{"x-session-id", id}});
  };
  const HttpAnswer first = ask();
  ASSERT_EQ(first.status, 200) << first.body;
  said.push_back({{"role", "assistant"}, {"content", first.json()["choices"][0]["message"]["content"]}});
  said.push_back({{"role", "user"}, {"content", "and the boat"}});
  const std::string path = folder.File("handover/" + id + ".weir");
  ASSERT_TRUE(Until([&] { return std::filesystem::exists(path) && one.Get(kSessions).json()["data"].empty(); }));
  std::filesystem::rename(path, path + "-away");
  EXPECT_EQ(ask().status, 404);
  std::filesystem::rename(path + "-away", path);
  const HttpAnswer second = ask();
  ASSERT_EQ(second.status, 200) << second.body;
  // One round more, not two.
  const auto seen = [](const HttpAnswer& answer) { return answer.json()["weir"]["seen"].get<int>(); };
  EXPECT_LT(seen(second), 5 * seen(first) / 2);
}

TEST(Handover, WhatDoesNotFitStaysForOthers) {
  const TempDir folder;
  std::string id;
  {
    ServerProcess one(Flags(folder, "one"));
    id = Client(one).Create({{"pot", 1200}});
    Client(one).Append(id, Words(100, "sea"));
    EXPECT_EQ(one.Terminate(), 0);
  }
  // Memory for forms would depend on the budget.
  const ServerProcess probe({"--pot", "96", "--answer-pots", "1", "--form-memory", "0"});
  const Json props = probe.Get("/props").json();
  const int64_t little = props["used_bytes"].get<int64_t>() + 2 * props["session_bytes"].get<int64_t>();
  const ServerProcess two(
      Flags(folder, "two", {"--answer-pots", "1", "--form-memory", "0", "--budget", std::to_string(little)}));
  EXPECT_EQ(two.Get(kSessions + "/" + id).status, 429);
  const ServerProcess three(Flags(folder, "three"));
  EXPECT_EQ(three.Get(kSessions + "/" + id).status, 200);
  // A name that is no id opens no file.
  for (const char* name : {"s-../../x", "s-..%2fhandover", "x", "s-A"}) {
    EXPECT_EQ(three.Get(kSessions + "/" + name).status, 404) << name;
  }
}

// Earlier versions wrote the state itself under the session's name.
TEST(Handover, ASessionThatAnEarlierVersionLeftIsTaken) {
  const TempDir folder;
  const ServerProcess one(Flags(folder, "one"));
  Client client(one);
  const std::string id = client.Create(), left = "s-old-0123";
  const Json seen = client.Append(id, Words(60, "sea"))["seen"];
  ASSERT_EQ(client.Do(id, "save", {{"name", "old"}}).status, 200);
  std::filesystem::rename(folder.File("old.weir"), folder.File("handover/" + left + ".weir"));
  EXPECT_EQ(client.State(left)["seen"], seen);
  EXPECT_EQ(client.Ask(left, "who?"), client.Ask(id, "who?"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.File("handover")));
}

// ---- sessions that are kept while they live

std::vector<std::string> Durable(const TempDir& folder, const std::string& node, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--durable", "--lease", "3"});  // a busy machine may be late
  return Flags(folder, node, std::move(more));
}

TEST(Durable, AServerThatIsKilledLosesNothingItAcknowledged) {
  const TempDir folder;
  std::vector<std::string> want;
  {
    const ServerProcess alone({"--pot", "96"});
    Client client(alone);
    const std::string id = client.Create({{"policy", "h2o"}});
    client.Talk(id, "sea");
    want = client.Talk(id, "man");
  }
  ServerProcess one(Durable(folder, "one"));
  const ServerProcess two(Durable(folder, "two"));
  Client client(one), other(two);
  const std::string id = client.Create({{"policy", "h2o"}}), fresh = client.Create();
  client.Talk(id, "sea");
  const std::string fork = client.Do(id, "fork", Json::object()).json()["id"];
  const Json before = client.State(id);
  EXPECT_EQ(two.Get(kSessions + "/" + id).status, 503);  // while its owner lives
  one.Kill();
  EXPECT_TRUE(Until([&] { return two.Get(kSessions + "/" + id).status == 200; }));
  for (const char* key : {"id", "policy", "pot", "seen", "kept", "selections"}) {
    EXPECT_EQ(other.State(id)[key], before[key]) << key;
  }
  EXPECT_EQ(other.Talk(id, "man"), want);
  EXPECT_EQ(other.State(fork)["seen"], before["seen"]);
  for (const std::string& one_of : {id, fresh, fork}) EXPECT_EQ(two.Delete(kSessions + "/" + one_of).status, 200);
  EXPECT_TRUE(std::filesystem::is_empty(folder.File("handover")));
}

// The end of a streamed answer says that it is stored.
TEST(Durable, AStreamedAnswerIsStoredBeforeItsEnd) {
  const TempDir folder;
  ServerProcess one(Durable(folder, "one"));
  Client client(one);
  const std::string id = client.Create();
  const HttpAnswer answer = client.Do(id, "ask", Question("who?", {{"stream", true}}));
  one.Kill();
  bool done = false;
  const std::vector<Json> events = answer.events(&done);
  EXPECT_TRUE(done);
  const ServerProcess two(Durable(folder, "two"));
  EXPECT_TRUE(Until([&] { return two.Get(kSessions + "/" + id).status == 200; }));
  EXPECT_EQ(Client(two).State(id)["seen"], events.back()["weir"]["seen"]);
}

// A server that was stopped for longer than its lease: it must not say what it still thinks, nor write it.
TEST(Durable, AnOwnerThatSleptAnswersNothing) {
  const TempDir folder;
  const ServerProcess one(Durable(folder, "one")), two(Durable(folder, "two"));
  Client client(one), other(two);
  const std::string id = client.Create(), path = kSessions + "/" + id;
  const int64_t before = client.Append(id, Words(20, "sea"))["seen"];
  one.Pause();
  EXPECT_TRUE(Until([&] { return two.Get(path).status == 200; }));
  const int64_t after = other.Append(id, Words(20, "man"))["seen"];
  EXPECT_GT(after, before);
  HttpAnswer read, appended;
  std::thread reading([&] { read = one.Get(path); });
  std::thread appending([&] { appended = client.Do(id, "append", {{"text", Words(5, "boat")}}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  one.GoOn();
  reading.join();
  appending.join();
  EXPECT_EQ(read.status, 503) << read.body;
  EXPECT_EQ(appended.status, 503) << appended.body;
  EXPECT_EQ(other.State(id)["seen"], after);
  // It is well again, and takes what the other one leaves.
  EXPECT_TRUE(Until([&] { return one.Post(kSessions, Json::object()).status == 201; }));
}

TEST(Durable, RecallIsNotKept) {
  const TempDir folder;
  const RunResult run = RunWeir({"serve", "-m", "none.gguf", "--snapshots", folder.path(), "--hand-over", "--durable",
                                 "--recall", "words", "--recall-dir", folder.File("archives")});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("--durable does not keep"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace weir::testing
