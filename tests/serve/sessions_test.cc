// SPDX-License-Identifier: Apache-2.0
// Stream sessions of the real server: reading, asking, copying, saving, coming back, and how many there may be.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/process.h"
#include "serve/kills.h"
#include "serve/server_process.h"
#include "serve/session_client.h"
#include "support/golden.h"

namespace weir::testing {
namespace {

TEST(Sessions, ALife) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const std::string id = client.Create({{"policy", "h2o"}, {"pot", 64}, {"system", "be the sea"}});
  Json state = client.State(id);
  EXPECT_EQ(state["pot"], 64);
  EXPECT_EQ(state["policy"].get<std::string>().rfind("h2o:", 0), 0u);
  EXPECT_GT(state["pinned"].get<int>(), 0);
  EXPECT_EQ(state["dropped"], 0);
  state = client.Append(id, Words(300, "sea"));
  EXPECT_GT(state["dropped"].get<int>(), 0);
  EXPECT_EQ(state["seen"], state["kept"].get<int>() + state["dropped"].get<int>());
  EXPECT_GT(state["selections"].get<int>(), 0);
  EXPECT_EQ(client.Do(id, "append", {{"text", "man"}, {"pinned", true}}).status, 200);
  EXPECT_GT(client.State(id)["pinned"].get<int>(), state["pinned"].get<int>());

  const HttpAnswer whole = client.Do(id, "ask", Question("who?"));
  EXPECT_EQ(whole.json()["weir"]["pinned"], client.State(id)["pinned"]);
  EXPECT_EQ(whole.json()["object"], "chat.completion");
  EXPECT_EQ(whole.json()["weir"]["seen"], client.State(id)["seen"]);
  bool done = false;
  const auto events = client.Do(id, "ask", Question("who?", {{"stream", true}})).events(&done);
  EXPECT_TRUE(done);
  EXPECT_EQ(events.back()["weir"]["seen"], client.State(id)["seen"]);

  EXPECT_EQ(server.Get(kSessions).json()["data"].size(), 1u);
  EXPECT_EQ(server.Delete(kSessions + "/" + id).json()["deleted"], true);
  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 404);
  EXPECT_EQ(server.Get(kSessions + "/" + id).status, 404);
  EXPECT_EQ(client.Do(id, "append", {{"text", "x"}}).status, 404);
  EXPECT_EQ(client.Do(id, "ask", Question("x")).status, 404);
  EXPECT_EQ(client.Do(id, "fork", Json::object()).status, 404);
  EXPECT_TRUE(server.Get(kSessions).json()["data"].empty());
}

TEST(Sessions, ALongBeginningHoldsUpNobody) {
  const ServerProcess server({"--pot", "96"});
  HttpAnswer made;
  std::thread making([&] { made = server.Post(kSessions, {{"system", Words(15000, "sea")}, {"pin_system", false}}); });
  // While it is read, another client can see the progress.
  int64_t seen = 0;
  for (int i = 0; i < 6000 && seen == 0; ++i) {
    const Json list = server.Get(kSessions).json()["data"];
    if (!list.empty()) seen = list[0]["seen"];
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  making.join();
  ASSERT_EQ(made.status, 201) << made.body;
  EXPECT_GT(seen, 0);
  EXPECT_LT(seen, made.json()["seen"].get<int64_t>());
  // What cannot be pinned leaves no session behind.
  EXPECT_EQ(server.Post(kSessions, {{"system", Words(200, "sea")}}).status, 400);
  EXPECT_EQ(server.Get(kSessions).json()["data"].size(), 1u);
}

// Who waits for a session that is busy, and goes, holds no thread.
TEST(Sessions, ClientsThatLeaveDoNotWaitForASession) {
  const ServerProcess server({"--pot", "96", "--connections", "4"});
  Client client(server);
  const std::string id = client.Create();
  const auto request = [&](const std::string& what, const std::string& body) {
    return "POST " + kSessions + "/" + id + "/" + what +
           " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  };
  const int asking = server.Connect();
  const std::string ask = request("ask", Question("who?", {{"max_tokens", 100000000}, {"stream", true}}).dump());
  ASSERT_EQ(write(asking, ask.data(), ask.size()), static_cast<ssize_t>(ask.size()));
  while (client.State(id)["busy"] != true) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  for (int i = 0; i < 4; ++i) server.Raw(request("fork", "{}"), /*leave=*/true);
  EXPECT_EQ(server.Get("/health").status, 200);
  EXPECT_EQ(client.State(id)["busy"], true);  // it did not just end
  close(asking);
}

TEST(Sessions, StreamedAndWholeSayTheSame) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const std::string a = client.Create(), b = client.Create();
  client.Append(a, Words(200, "man"));
  client.Append(b, Words(200, "man"));
  std::string streamed;
  for (const Json& event : client.Do(b, "ask", Question("who?", {{"stream", true}})).events()) {
    streamed += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, client.Ask(a, "who?"));
}

TEST(Sessions, NobodyHearsTheOthers) {
  const ServerProcess server({"--pot", "80", "--answer-pots", "1"});
  Client client(server);
  const std::vector<std::string> topics = {"sea", "man", "the", "and"};
  std::vector<std::vector<std::string>> alone, together(topics.size());
  for (const std::string& topic : topics) alone.push_back(client.Talk(client.Create(), topic));
  EXPECT_NE(alone[0], alone[1]);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < topics.size(); ++i) {
    const std::string id = client.Create();
    clients.emplace_back([&, i, id] { together[i] = Client(server).Talk(id, topics[i]); });
  }
  clients.emplace_back([&] {
    for (int i = 0; i < 5; ++i) EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "a"}}).status, 200);
  });
  for (std::thread& thread : clients) thread.join();
  EXPECT_EQ(together, alone);
}

TEST(Sessions, AsManyAsTheBudgetHolds) {
  // Memory for forms would depend on the budget.
  const ServerProcess probe({"--pot", "64", "--answer-pots", "1", "--form-memory", "0"});
  const int64_t each = probe.Get("/props").json()["session_bytes"], pots = probe.Get("/props").json()["used_bytes"];
  const std::string budget = std::to_string(pots + 3 * each + each / 2);
  const ServerProcess server({"--pot", "64", "--answer-pots", "1", "--form-memory", "0", "--budget", budget});
  Client client(server);
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(client.Create());
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer refused = server.Post(kSessions, Json::object());
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_EQ(refused.json()["error"]["code"], "budget_exceeded");
    EXPECT_NE(refused.body.find(std::to_string(each)), std::string::npos) << refused.body;
    EXPECT_EQ(client.Do(ids[0], "fork", Json::object()).status, 429);
  }
  EXPECT_EQ(server.Post(kSessions, {{"pot", 1 << 20}}).status, 400);  // never fits, even into an empty budget
  const Json props = server.Get("/props").json();
  EXPECT_LE(props["used_bytes"].get<int64_t>(), props["budget_bytes"].get<int64_t>());
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "a"}}).status, 200);  // has a pot of its own
  server.Delete(kSessions + "/" + ids[0]);
  EXPECT_EQ(server.Post(kSessions, Json::object()).status, 201);
}

// Sessions of clients that are gone make room for others.
TEST(Sessions, OneThatNobodyUsesEnds) {
  const ServerProcess server({"--pot", "64", "--session-idle", "4"});
  Client client(server);
  const std::string left = client.Create(), used = client.Create(), busy = client.Create();
  const std::string body = Question("who?", {{"max_tokens", 100000000}, {"stream", true}}).dump();
  const std::string ask = "POST " + kSessions + "/" + busy +
                          "/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(body.size()) +
                          "\r\n\r\n" + body;
  const int asking = server.Connect();
  ASSERT_EQ(write(asking, ask.data(), ask.size()), static_cast<ssize_t>(ask.size()));
  std::thread taking([&] {
    for (char buffer[4096]; read(asking, buffer, sizeof(buffer)) > 0;) {
    }
  });
  const auto ids_until = [&](size_t n) {
    std::vector<std::string> ids;
    for (int i = 0; i < 1200; ++i) {
      EXPECT_EQ(client.State(used)["idle_s"], 0);
      ids.clear();
      const Json list = server.Get(kSessions).json();  // outlives the loop over a part of it
      for (const Json& one : list["data"]) {
        ids.push_back(one["id"]);
        EXPECT_LE(one["idle_s"].get<int>(), 60);
      }
      if (ids.size() == n) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  const auto sorted = [](std::vector<std::string> ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  EXPECT_EQ(ids_until(3), sorted({left, used, busy}));
  EXPECT_EQ(ids_until(2), sorted({used, busy}));
  EXPECT_EQ(server.Get(kSessions + "/" + left).status, 404);
  shutdown(asking, SHUT_RDWR);
  taking.join();
  close(asking);
  EXPECT_EQ(ids_until(1), sorted({used}));
  EXPECT_NE(server.Get("/metrics").body.find("\nweir_sessions_expired_total 2\n"), std::string::npos);
}

TEST(Sessions, AForkGoesItsOwnWay) {
  const ServerProcess server({"--pot", "64"});
  Client client(server);
  const std::string id = client.Create({{"system", "be the sea"}});
  client.Append(id, Words(120, "man"));
  client.Ask(id, "who?");
  const HttpAnswer forked = client.Do(id, "fork", Json::object());
  ASSERT_EQ(forked.status, 201) << forked.body;
  const std::string copy = forked.json()["id"];
  EXPECT_NE(copy, id);
  const auto original = client.Talk(id, "sea");
  EXPECT_EQ(client.Talk(copy, "sea"), original);
  EXPECT_NE(client.Ask(id, "one"), client.Ask(copy, "two"));
}

TEST(Sessions, SavedAndRestoredElsewhere) {
  const TempDir folder;
  for (const char* policy : {"streaming_llm", "h2o", "snapkv", "infinipot"}) {
    SCOPED_TRACE(policy);
    std::vector<std::string> went_on;
    Json saved;
    {
      const ServerProcess server({"--pot", "96", "--snapshots", folder.path()});
      Client client(server);
      const std::string id = client.Create({{"policy", policy}});
      client.Talk(id, "man");
      client.Append(id, "a turn that is open");
      const HttpAnswer answer = client.Do(id, "save", {{"name", policy}});
      ASSERT_EQ(answer.status, 200) << answer.body;
      saved = answer.json()["session"];
      went_on = client.Talk(id, "sea");
    }
    const ServerProcess other({"--pot", "200", "--snapshots", folder.path(), "-t", "2"});
    const HttpAnswer restored = other.Post(kSessions + "/restore", {{"name", policy}});
    ASSERT_EQ(restored.status, 201) << restored.body;
    Json state = restored.json();
    const std::string id = state["id"];
    // Not the bytes: scratch follows the threads.
    for (const char* key : {"policy", "pot", "seen", "kept", "dropped", "pinned", "selections"}) {
      EXPECT_EQ(state[key], saved[key]) << key;
    }
    EXPECT_EQ(Client(other).Talk(id, "sea"), went_on);
  }
}

// What a server makes, it can make again: the word "profile" in an option is no profile, and no policy grows beyond
// what is read back when its options are written out.
TEST(Sessions, EveryPolicyComesBack) {
  const TempDir folder;
  const std::string policy = "infinipot:catalyst=\"What profile=fits, then?\"";
  const ServerProcess server({"--pot", "96", "--snapshots", folder.path(), "--policy", policy});
  Client client(server);
  for (const Json& body : {Json::object(), Json{{"policy", policy}}}) {
    const std::string id = client.Create(body);
    client.Append(id, Words(100, "sea"));
    ASSERT_EQ(client.Do(id, "save", {{"name", "profile"}}).status, 200);
    const HttpAnswer restored = server.Post(kSessions + "/restore", {{"name", "profile"}});
    ASSERT_EQ(restored.status, 201) << restored.body;
    EXPECT_EQ(Client(server).Talk(restored.json()["id"], "man"), client.Talk(id, "man"));
  }
  const auto with_catalyst = [](size_t n) { return "infinipot:catalyst=" + std::string(n, 'a'); };
  const HttpAnswer refused = server.Post(kSessions, {{"policy", with_catalyst(4070)}});  // as it is, it would pass
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("at most 4096 bytes"), std::string::npos) << refused.body;
  const RunResult run = RunWeir(
      {"serve", "-m", GoldenDir() + "llama.gguf", "--port", "0", "--pot", "8192", "--policy", with_catalyst(4070)});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("at most 4096 bytes"), std::string::npos) << run.err;
}

TEST(Sessions, SnapshotsStayInTheirFolder) {
  const TempDir folder;
  std::filesystem::create_directory(folder.File("in"));
  folder.Write("out.weir", "outside");
  const ServerProcess server({"--pot", "64", "--snapshots", folder.File("in")});
  Client client(server);
  const std::string id = client.Create();
  for (const Json& name :
       {Json("../out"), Json("/etc/passwd"), Json(".."), Json("."), Json(""), Json("a/b"), Json(".a"), Json("a\\b"),
        Json(std::string("a\0b", 3)), Json("%2e%2e"), Json(std::string(101, 'a')), Json(7), Json(nullptr)}) {
    EXPECT_EQ(client.Do(id, "save", {{"name", name}}).status, 400) << name.dump();
    EXPECT_EQ(server.Post(kSessions + "/restore", {{"name", name}}).status, 400) << name.dump();
  }
  const HttpAnswer missing = server.Post(kSessions + "/restore", {{"name", "missing"}});
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.body.find(folder.path()), std::string::npos) << missing.body;
  EXPECT_EQ(folder.Names(), (std::vector<std::string>{"in", "out.weir"}));

  // What is no snapshot, is damaged, or is of another model.
  std::filesystem::copy_file(folder.File("out.weir"), folder.File("in/no.weir"));
  EXPECT_EQ(server.Post(kSessions + "/restore", {{"name", "no"}}).status, 400);
  ASSERT_EQ(client.Do(id, "save", {{"name", "good"}}).status, 200);
  {
    const ServerProcess other({"--pot", "64", "--snapshots", folder.File("in")}, "qwen2");
    const HttpAnswer refused = other.Post(kSessions + "/restore", {{"name", "good"}});
    EXPECT_EQ(refused.status, 400);
    EXPECT_NE(refused.body.find("model"), std::string::npos) << refused.body;
  }
  std::fstream file(folder.File("in/good.weir"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(200);
  file.put('~');
  file.close();
  EXPECT_EQ(server.Post(kSessions + "/restore", {{"name", "good"}}).status, 400);
  const ServerProcess none({"--pot", "64"});
  EXPECT_EQ(none.Post(kSessions + "/restore", {{"name", "good"}}).status, 400);
}

TEST(Sessions, AKilledSaveLeavesTheOldOrTheNew) { KillDuring("save", 16); }

TEST(Sessions, WrongRequests) {
  const ServerProcess server({"--pot", "64"});
  Client client(server);
  for (const Json& body : {Json{{"policy", "nobody"}}, Json{{"policy", "h2o:profile=/etc/passwd"}}, Json{{"policy", 3}},
                           Json{{"pot", 1}}, Json{{"pot", "many"}}, Json{{"pot", -5}}, Json{{"colour", 1}},
                           Json{{"system", std::string(70000, 'a')}}, Json{{"system", Words(500, "sea")}}}) {
    EXPECT_EQ(server.Post(kSessions, body).status, 400) << body.dump().substr(0, 100);
  }
  EXPECT_TRUE(server.Get(kSessions).json()["data"].empty());
  const std::string id = client.Create();
  for (const Json& body :
       {Json::object(), Json{{"text", 7}}, Json{{"text", "a"}, {"pinned", 1}}, Json{{"text", "a"}, {"x", 1}}}) {
    EXPECT_EQ(client.Do(id, "append", body).status, 400) << body.dump();
  }
  EXPECT_EQ(client.Do(id, "ask", Json::object()).status, 400);
  EXPECT_EQ(client.Do(id, "ask", Question(std::string(70000, 'a'))).status, 400);
  EXPECT_EQ(client.Do(id, "dance", Json::object()).status, 404);
  // More pinned than the pot holds is an answer; the session lives on.
  EXPECT_EQ(client.Do(id, "append", {{"text", Words(500, "sea")}, {"pinned", true}}).status, 400);
  EXPECT_EQ(server.Get(kSessions + "/" + id).status, 200);
}

TEST(Sessions, ALongTextDoesNotHoldUpAnswers) {
  const ServerProcess server({"--pot", "512", "--answer-pots", "1", "-b", "16"});
  Client client(server);
  const std::string id = client.Create();
  std::atomic<bool> ended{false};
  HttpAnswer reader;
  std::thread reading([&] {
    reader = client.Do(id, "append", {{"text", Words(150000, "sea")}});
    ended = true;
  });
  while (!ended && client.State(id)["seen"] == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(client.State(id)["busy"], true);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 4}, {"ignore_eos", true}}).status,
              200);
    EXPECT_FALSE(ended) << "the text was read before answer " << i;
  }
  // A session can be deleted while it reads; the reading request gets an error.
  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
  reading.join();
  EXPECT_EQ(reader.status, 404) << reader.body;
  EXPECT_NE(reader.body.find("deleted"), std::string::npos) << reader.body;
}

}  // namespace
}  // namespace weir::testing
