// SPDX-License-Identifier: Apache-2.0
// What gateways and schedulers ask of a server: their metrics, probes, and the session's name in a header.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "cli/process.h"
#include "serve/session_client.h"
#include "support/until.h"

namespace weir::testing {
namespace {

const std::string kName = "s-chosen-0123456789abcdef";

std::string Head(const std::string& line, const std::string& more = "") {
  return line + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + more + "Connection: close\r\n\r\n";
}

// The value of a metric; -1: there is none.
double Metric(const ServerProcess& server, const std::string& name) {
  const std::string text = server.Get("/metrics").body;
  const size_t at = text.find("\n" + name);
  if (at == std::string::npos) return -1;
  const size_t end = text.find('\n', at + 1);
  return std::stod(text.substr(text.rfind(' ', end), end));
}

TEST(Gateway, SchedulersReadTheirMetrics) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  // The scrape itself is not a request that runs.
  EXPECT_EQ(Metric(server, "vllm:num_requests_running{"), 0);
  EXPECT_EQ(Metric(server, "weir_jobs_running "), 0);
  EXPECT_EQ(Metric(server, "vllm:num_requests_waiting{"), 0);
  EXPECT_EQ(Metric(server, "vllm:kv_cache_usage_perc{"), 0) << "idle answer pots are room";
  EXPECT_EQ(Metric(server, "vllm:cache_config_info{"), 1);
  const std::string id = client.Create();
  const double share = Metric(server, "vllm:kv_cache_usage_perc{");
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1);
  EXPECT_EQ(Metric(server, "vllm:gpu_cache_usage_perc{"), share);
  EXPECT_EQ(Metric(server, "weir_room_share "), share);
  // One asks the session, one waits for it.
  const Json endless = Question("who?", {{"max_tokens", 100000000}});
  std::thread asking([&] { (void)client.Do(id, "ask", endless); });
  EXPECT_TRUE(Until([&] { return Metric(server, "vllm:num_requests_running{") == 1; }));
  std::thread waiting([&] { (void)client.Do(id, "ask", endless); });
  EXPECT_TRUE(Until([&] { return Metric(server, "vllm:num_requests_waiting{") == 1; }));
  EXPECT_EQ(Metric(server, "vllm:num_requests_running{"), 1);
  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
  asking.join();
  waiting.join();
  EXPECT_EQ(Metric(server, "vllm:kv_cache_usage_perc{"), 0);
}

TEST(Gateway, MetricsMayNeedNoKey) {
  const ServerProcess closed({"--api-key", "key"}), open({"--api-key", "key", "--public-metrics"});
  EXPECT_EQ(closed.Get("/metrics").status, 401);
  EXPECT_EQ(open.Get("/metrics").status, 200);
  EXPECT_EQ(open.Get("/metrics", "wrong").status, 401);
  EXPECT_EQ(open.Get("/v1/sessions").status, 401);
  for (const char* probe : {"/livez", "/readyz", "/health"}) EXPECT_EQ(closed.Get(probe).status, 200) << probe;
}

TEST(Gateway, AFullQueueOrBudgetIsAliveAndNotReady) {
  const ServerProcess server({"--pot", "96", "--queue", "1"});
  Client client(server);
  EXPECT_EQ(server.Get("/readyz").status, 200);
  std::string last;
  int n = 0;
  for (HttpAnswer made; (made = server.Post(kSessions, Json::object())).status == 201; ++n) last = made.json()["id"];
  EXPECT_GT(n, 0);
  const HttpAnswer full = server.Get("/readyz");
  EXPECT_EQ(full.status, 503) << full.body;
  EXPECT_EQ(full.json()["error"]["code"], "no_room");
  EXPECT_EQ(server.Get("/readyz?exclude=queue").status, 503);
  EXPECT_EQ(server.Get("/readyz?exclude=queue&exclude=room").status, 200);
  EXPECT_EQ(server.Get("/livez").status, 200);
  EXPECT_EQ(server.Get("/health").status, 200);

  const Json endless = Question("who?", {{"max_tokens", 100000000}});
  std::thread asking([&] { (void)client.Do(last, "ask", endless); });
  EXPECT_TRUE(Until([&] { return client.State(last)["busy"] == true; }));
  std::thread waiting([&] { (void)client.Do(last, "ask", endless); });
  EXPECT_TRUE(Until([&] { return Metric(server, "weir_jobs_waiting ") == 1; }));
  EXPECT_EQ(server.Get("/readyz").json()["error"]["code"], "queue_full");
  EXPECT_EQ(server.Get("/readyz?exclude=queue").json()["error"]["code"], "no_room");
  EXPECT_EQ(server.Delete(kSessions + "/" + last).status, 200);
  asking.join();
  waiting.join();
  EXPECT_EQ(server.Get("/readyz").status, 200);
}

TEST(Gateway, AServerWithoutRoomForAnySessionIsReady) {
  std::string needed;  // for the answer pots alone
  {
    const ServerProcess idle({"--pot", "96", "--form-memory", "2MiB"});
    needed = std::to_string(static_cast<int64_t>(Metric(idle, "weir_used_bytes ")) + 1000);
  }
  const ServerProcess server({"--pot", "96", "--form-memory", "2MiB", "--budget", needed});
  ASSERT_EQ(server.Post(kSessions, Json::object()).status, 429);
  EXPECT_EQ(server.Get("/readyz").status, 200);
}

TEST(Gateway, AHeaderNamesTheNewSessionAndAnswersHaveIt) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const HttpAnswer made = server.PostWith(kSessions, Json::object(), {{"x-session-id", kName}});
  EXPECT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(made.json()["id"], kName);
  EXPECT_EQ(made.session_id, kName);
  const HttpAnswer again = server.PostWith(kSessions, Json::object(), {{"x-session-id", kName}});
  EXPECT_EQ(again.status, 409) << again.body;
  EXPECT_EQ(again.json()["error"]["code"], "session_exists");
  // "new" is what chats say.
  const HttpAnswer fresh = server.PostWith(kSessions, Json::object(), {{"x-session-id", "new"}});
  EXPECT_EQ(fresh.status, 201);
  EXPECT_EQ(fresh.session_id, fresh.json()["id"]);
  for (const char* bad : {"s-short", "chosen-0123456789abcdef", "s-0123456789ABCDEF", "s-../../0123456789abc"}) {
    EXPECT_EQ(server.PostWith(kSessions, Json::object(), {{"x-session-id", bad}}).status, 400) << bad;
  }
  const std::string path = kSessions + "/" + kName;
  EXPECT_EQ(server.Get(path).session_id, kName);
  EXPECT_EQ(client.Do(kName, "append", {{"text", "the sea"}}).session_id, kName);
  EXPECT_EQ(client.Do(kName, "ask", Question("who?")).session_id, kName);
  EXPECT_EQ(client.Do(kName, "ask", Question("who?", {{"stream", true}})).session_id, kName);
  const HttpAnswer fork = client.Do(kName, "fork", Json::object());
  EXPECT_EQ(fork.session_id, fork.json()["id"]);
  // A chat goes on in the session that its header names.
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "and then?"}}}}, {"max_tokens", 4}};
  EXPECT_EQ(server.PostWith("/v1/chat/completions", chat, {{"x-session-id", kName}}).session_id, kName);
  EXPECT_EQ(server.Delete(path).status, 200);
  EXPECT_EQ(server.Get(path).session_id, "");
}

TEST(Gateway, ADrainingServerIsAliveNotReadyAndSaysWhatToDo) {
  const TempDir folder;
  ServerProcess server({"--pot", "96", "--snapshots", folder.path(), "--hand-over", "--drain", "4"});
  Client client(server);
  const std::string busy = client.Create(), idle = client.Create();
  std::thread asking([&] { (void)client.Do(busy, "ask", Question("who?", {{"max_tokens", 100000000}})); });
  EXPECT_TRUE(Until([&] { return client.State(busy)["busy"] == true; }));
  std::thread ending([&] { EXPECT_EQ(server.Terminate(), 0); });
  EXPECT_TRUE(Until([&] { return server.Get("/readyz").status == 503; }));
  const HttpAnswer not_ready = server.Get("/readyz?exclude=room");
  EXPECT_EQ(not_ready.status, 503);
  EXPECT_EQ(not_ready.json()["error"]["code"], "draining");
  EXPECT_EQ(server.Get("/livez").status, 200);
  EXPECT_EQ(Metric(server, "weir_draining "), 1);
  const std::string refused = server.Raw(Head("GET " + kSessions + "/" + idle));
  EXPECT_EQ(refused.rfind("HTTP/1.1 503", 0), 0u) << refused;
  for (const char* header : {"\r\nRetry-After: 1\r\n", "\r\nx-should-retry: true\r\n"}) {
    EXPECT_NE(refused.find(header), std::string::npos) << refused;
  }
  ending.join();
  asking.join();
}

}  // namespace
}  // namespace weir::testing
