// SPDX-License-Identifier: Apache-2.0
// Webhooks of the real server: signed, in order, none lost or given twice; receivers that are down, refuse or hang.
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cli/process.h"
#include "serve/server_process.h"
#include "serve/session_client.h"
#include "serve/webhook_signature.h"
#include "support/golden.h"
#include "support/until.h"

namespace weir::testing {
namespace {

constexpr const char* kSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

// Takes requests on a port that stays its own while it is down.
class Receiver {
 public:
  struct Got {
    std::string id, signature, body, trace;
    int64_t timestamp = 0;
    int answer = 0;
  };
  Receiver() { Up(); }
  ~Receiver() { Down(); }
  void Up() {
    server_ = std::make_unique<httplib::Server>();
    server_->Post("/hook", [this](const httplib::Request& request, httplib::Response& response) {
      Got got;
      got.id = request.get_header_value("webhook-id");
      got.signature = request.get_header_value("webhook-signature");
      got.timestamp = std::atoll(request.get_header_value("webhook-timestamp").c_str());
      got.body = request.body;
      got.trace = request.get_header_value("traceparent");
      const std::lock_guard<std::mutex> lock(mutex_);
      got.answer = answer_ ? answer_(got, got_.size()) : 200;
      response.status = got.answer;
      got_.push_back(std::move(got));
    });
    if (port_ == 0)
      port_ = server_->bind_to_any_port("127.0.0.1");
    else
      ASSERT_TRUE(server_->bind_to_port("127.0.0.1", port_));
    thread_ = std::thread([this] { server_->listen_after_bind(); });
    ASSERT_TRUE(Until([this] { return server_->is_running(); }));
  }
  void Down() {
    if (server_ == nullptr) return;
    server_->stop();
    thread_.join();
    server_.reset();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/hook"; }
  // What to answer to a request, the n-th; before it arrives.
  void Answer(std::function<int(const Got&, size_t)> answer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answer_ = std::move(answer);
  }
  std::vector<Got> got() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return got_;
  }
  std::vector<Got> Accepted() const {
    std::vector<Got> out = got();
    std::erase_if(out, [](const Got& one) { return one.answer != 200; });
    return out;
  }

 private:
  std::unique_ptr<httplib::Server> server_;
  std::thread thread_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::function<int(const Got&, size_t)> answer_;
  std::vector<Got> got_;
};

class WebhooksTest : public ::testing::Test {
 protected:
  WebhooksTest() : secret_(folder_.Write("secret", std::string(kSecret) + "\n")) {}
  std::vector<std::string> Flags(std::vector<std::string> more = {}) const {
    more.insert(more.end(),
                {"--pot", "96", "--budget", "64MiB", "--webhook", receiver_.url(), "--webhook-secret-file", secret_});
    return more;
  }
  // The tiny model says nothing sensible: every rise of its odds is an event here.
  Json Rule(const std::string& when, const std::string& url) const {
    return {{"when", when}, {"on", 0.01}, {"off", 0},       {"least", -30},
            {"begin", 1},   {"end", 1},   {"calibrate", 4}, {"webhook", url}};
  }
  static constexpr int kRules = 4;
  // More rules, each of which has an event or more in a Live().
  void Watch(const ServerProcess& server, const std::string& id, const std::string& url) const {
    for (int i = 0; i < kRules; ++i) {
      const HttpAnswer made = server.Post(kSessions + "/" + id + "/rules", Rule("who came? => the man", url));
      EXPECT_EQ(made.status, 201) << made.body;
      EXPECT_EQ(made.json()["webhook"], url);
    }
  }
  std::string Watched(Client& client, const ServerProcess& server) const {
    const std::string id = client.Create({{"rule_tokens", 96}});
    Watch(server, id, receiver_.url());
    return id;
  }
  static void Live(Client& client, const std::string& id) {
    for (int i = 0; i < 12; ++i) client.Append(id, i % 3 == 0 ? "the man came " : "the sea and the sea ");
  }
  static int64_t Newest(Client& client, const std::string& id) { return client.State(id)["rules"]["last_event_id"]; }
  static int64_t Metric(const ServerProcess& server, const std::string& name) {
    for (const std::string& line : Lines(server.Get("/metrics").body)) {
      if (line.rfind(name + " ", 0) == 0) return std::atoll(line.c_str() + name.size() + 1);
    }
    ADD_FAILURE() << "no metric " << name;
    return -1;
  }
  // Every event of the session from 1 to `newest`, once, in order, and rightly signed.
  void ExpectAll(const std::string& session, int64_t newest) const {
    ASSERT_TRUE(Until([&] { return std::ssize(receiver_.Accepted()) >= newest; }))
        << receiver_.Accepted().size() << " of " << newest;
    const std::vector<Receiver::Got> all = receiver_.Accepted();
    ASSERT_EQ(std::ssize(all), newest);
    const auto key = WebhookKey::Parse(kSecret);
    for (int64_t n = 1; n <= newest; ++n) {
      const Receiver::Got& one = all[static_cast<size_t>(n - 1)];
      EXPECT_EQ(one.id, session + "-" + std::to_string(n));
      EXPECT_EQ(one.signature, key->Sign(one.id, one.timestamp, one.body));
      EXPECT_NEAR(static_cast<double>(one.timestamp), static_cast<double>(std::time(nullptr)), 60);
      const Json event = Json::parse(one.body, nullptr, false);
      EXPECT_EQ(event["id"], n);
      EXPECT_EQ(event["session"], session);
      EXPECT_EQ(event["type"], "event");
    }
  }

  const TempDir folder_;
  const std::string secret_;
  Receiver receiver_;
};

TEST_F(WebhooksTest, EventsArriveSignedAndInOrder) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string id = Watched(client, server);
  Live(client, id);
  const int64_t newest = Newest(client, id);
  ASSERT_GE(newest, kRules);
  ExpectAll(id, newest);
  EXPECT_EQ(Metric(server, "weir_webhooks_delivered_total"), newest);
  EXPECT_EQ(Metric(server, "weir_webhooks_waiting"), 0);
  EXPECT_EQ(Metric(server, "weir_webhooks_dropped_total"), 0);
}

// With an address for spans, an event names the trace of what it came of.
TEST_F(WebhooksTest, EventsNameTheTraceOfWhatWasRead) {
  const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const ServerProcess server(Flags({"--otlp", receiver_.url()})), plain(Flags());
  for (const ServerProcess* one : {&server, &plain}) {
    Client client(*one);
    const std::string id = Watched(client, *one);
    for (int i = 0; i < 12; ++i) {
      const Json text = {{"text", i % 3 == 0 ? "the man came " : "the sea and the sea "}};
      const HttpAnswer read = one->PostWith(kSessions + "/" + id + "/append", text,
                                            {{"traceparent", "00-" + trace + "-00f067aa0ba902b7-01"}});
      EXPECT_EQ(read.status, 200) << read.body;
    }
    EXPECT_TRUE(Until([&] { return Metric(*one, "weir_webhooks_waiting") == 0; }));
    int n = 0;
    for (const Receiver::Got& got : receiver_.Accepted()) {
      if (got.id.rfind(id, 0) != 0) continue;
      ++n;
      EXPECT_EQ(got.trace.size(), one == &server ? 55u : 0u) << got.trace;
      if (one == &server) EXPECT_EQ(got.trace.substr(3, 32), trace);
    }
    EXPECT_GE(n, kRules);
  }
}

TEST_F(WebhooksTest, AReceiverThatIsDownMissesNothing) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string id = Watched(client, server);
  receiver_.Down();
  Live(client, id);  // which waits for nobody
  EXPECT_GE(Metric(server, "weir_webhooks_waiting"), kRules);
  // Up again, it is overloaded at first.
  receiver_.Answer([](const Receiver::Got&, size_t n) { return n < 2 ? 503 : 200; });
  receiver_.Up();
  Watch(server, id, receiver_.url());
  Live(client, id);
  ExpectAll(id, Newest(client, id));
  const std::vector<Receiver::Got> all = receiver_.got();
  EXPECT_EQ(all[0].id, all[2].id) << "the same event again, under its id";
  EXPECT_GE(Metric(server, "weir_webhooks_failed_total"), 3);
}

TEST_F(WebhooksTest, WhatWaitsOutlivesAKilledServer) {
  const std::vector<std::string> flags = Flags({"--webhook-queue", folder_.File("queue")});
  receiver_.Down();
  std::string id;
  int64_t newest = 0;
  {
    ServerProcess server(flags);
    Client client(server);
    id = Watched(client, server);
    Live(client, id);
    newest = Newest(client, id);
    server.Kill();
  }
  ASSERT_GE(newest, kRules);
  {
    const ServerProcess server(flags);  // it finds nobody, either
    EXPECT_EQ(Metric(server, "weir_webhooks_waiting"), newest);
  }
  const ServerProcess server(flags);
  receiver_.Up();
  ExpectAll(id, newest);
  EXPECT_TRUE(Until([&] { return Metric(server, "weir_webhooks_waiting") == 0; }));
}

// Killed again and again while the receiver takes events: none is lost. The one that was under way may come again,
// under its id.
TEST_F(WebhooksTest, KillsLoseNothing) {
  const std::vector<std::string> flags = Flags({"--webhook-queue", folder_.File("queue")});
  receiver_.Answer([](const Receiver::Got&, size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return 200;
  });
  std::vector<std::string> want;
  for (int round = 0; round < 5; ++round) {
    ServerProcess server(flags);
    Client client(server);
    const std::string id = Watched(client, server);
    Live(client, id);
    for (int64_t n = 1; n <= Newest(client, id); ++n) want.push_back(id + "-" + std::to_string(n));
    server.Kill();
  }
  const ServerProcess server(flags);
  ASSERT_TRUE(Until([&] { return Metric(server, "weir_webhooks_waiting") == 0; }));
  std::vector<std::string> got;
  for (const Receiver::Got& one : receiver_.Accepted()) {
    if (got.empty() || got.back() != one.id) got.push_back(one.id);
  }
  EXPECT_EQ(got, want);
}

TEST_F(WebhooksTest, WhatWaitsMovesWithItsSession) {
  const auto flags = [&](const std::string& node) {
    return Flags({"--snapshots", folder_.path(), "--hand-over", "--node", node, "--webhook-queue", folder_.File(node)});
  };
  receiver_.Down();
  ServerProcess one(flags("one"));
  Client client(one);
  const std::string id = Watched(client, one);
  Live(client, id);
  EXPECT_EQ(one.Terminate(), 0);
  const ServerProcess two(flags("two")), again(flags("one"));
  Client other(two);
  Watch(two, id, receiver_.url());
  Live(other, id);
  EXPECT_EQ(Metric(again, "weir_webhooks_waiting"), 0) << "they went with the session";
  receiver_.Up();
  ExpectAll(id, Newest(other, id));
}

// A server that is killed when a session's file is whole, and before its journal says that the session has left.
TEST_F(WebhooksTest, AKillAsTheSessionLeavesRepeatsNothing) {
  const std::string queue = folder_.File("queue");
  const auto flags = Flags({"--snapshots", folder_.path(), "--hand-over", "--webhook-queue", queue});
  receiver_.Down();
  std::string id, journal;
  {
    ServerProcess one(flags);
    Client client(one);
    id = Watched(client, one);
    Live(client, id);
    std::stringstream bytes;
    bytes << std::ifstream(queue).rdbuf();
    journal = bytes.str();
    EXPECT_EQ(one.Terminate(), 0);
  }
  ASSERT_NE(journal.find(id), std::string::npos);
  std::ofstream(queue, std::ios::trunc) << journal;
  receiver_.Up();
  const ServerProcess two(flags);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_TRUE(receiver_.Accepted().empty()) << "they come with their session";
  Client other(two);
  Live(other, id);
  ExpectAll(id, Newest(other, id));
}

TEST_F(WebhooksTest, ARefusedEventHoldsUpNoOther) {
  const ServerProcess server(Flags());
  Client client(server);
  receiver_.Answer([](const Receiver::Got&, size_t n) { return n == 0 ? 422 : 200; });
  const std::string id = Watched(client, server);
  Live(client, id);
  const int64_t newest = Newest(client, id);
  ASSERT_TRUE(Until([&] { return std::ssize(receiver_.got()) == newest; }));
  EXPECT_EQ(receiver_.Accepted().front().id, id + "-2");
  EXPECT_EQ(Metric(server, "weir_webhooks_dropped_total"), 1);
}

// A receiver that takes a request and never answers holds up neither the stream, nor other receivers, nor the end.
TEST_F(WebhooksTest, AReceiverThatHangsHoldsUpNobody) {
  std::atomic<bool> go{false};
  Receiver slow;
  slow.Answer([&](const Receiver::Got&, size_t) {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return 200;
  });
  ServerProcess server(Flags({"--webhook", slow.url()}));
  Client client(server);
  const std::string id = Watched(client, server), hung = client.Create({{"rule_tokens", 96}});
  Watch(server, hung, slow.url());
  for (const std::string& one : {id, hung}) Live(client, one);
  EXPECT_GE(Newest(client, hung), 1);
  ExpectAll(id, Newest(client, id));
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(server.Terminate(), 0);
  EXPECT_LT(SecondsSince(start), 8);
  go = true;
}

TEST_F(WebhooksTest, WhatIsRefused) {
  const ServerProcess server(Flags()), plain({"--pot", "96", "--budget", "64MiB"});
  const auto refused = [&](const ServerProcess& where, const Json& url, const std::string& word) {
    Client client(where);
    const std::string id = client.Create({{"rule_tokens", 96}});
    Json rule = Rule("a => b", "");
    rule["webhook"] = url;
    const HttpAnswer answer = where.Post(kSessions + "/" + id + "/rules", rule);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find(word), std::string::npos) << answer.body;
  };
  refused(plain, receiver_.url(), "--webhook");
  for (const std::string& other : {receiver_.url() + "/", receiver_.url() + "?a=b", std::string("http://127.0.0.1:1/x"),
                                   std::string("file:///etc/passwd"), std::string(5000, 'x')}) {
    refused(server, other, "webhook");
  }
  refused(server, 7, "webhook");
  EXPECT_TRUE(receiver_.got().empty());
  const auto starts = [&](const std::vector<std::string>& more, const std::string& word) {
    std::vector<std::string> words = {"serve", "-m", GoldenDir() + "llama.gguf", "--port", "0"};
    words.insert(words.end(), more.begin(), more.end());
    const RunResult run = RunWeir(words);
    EXPECT_NE(run.code, 0);
    EXPECT_NE(run.err.find(word), std::string::npos) << run.err;
    EXPECT_EQ(run.err.find("MfKQ"), std::string::npos) << "the secret is not shown";
  };
  starts({"--webhook", receiver_.url()}, "--webhook-secret-file");
  starts({"--webhook-queue", folder_.File("queue")}, "--webhook");
  starts({"--webhook", "ftp://a/b", "--webhook-secret-file", secret_}, "https://");
  starts({"--webhook", "http://user:pass@a/b", "--webhook-secret-file", secret_}, "not an address");
  starts({"--webhook", "http://a/b", "--webhook-secret-file", folder_.Write("short", "whsec_MfKQ")}, "bytes");
  starts({"--webhook", "http://a/b", "--webhook-secret-file", secret_, "--webhook-queue",
          folder_.Write("notes", "a text of somebody\n")},
         "no journal");
}

}  // namespace
}  // namespace weir::testing
