// SPDX-License-Identifier: Apache-2.0
// Servers whose sessions are in S3 or Redis.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "cli/process.h"
#include "serve/session_client.h"
#include "support/fault_proxy.h"
#include "support/store_places.h"
#include "support/until.h"

namespace weir::testing {
namespace {

using Fault = FaultProxy::Fault;

class ServeStores : public ::testing::TestWithParam<const char*> {
 protected:
  static StorePlace& Place() { return StorePlace::Of(GetParam()); }
  void SetUp() override {
    if (!Place().skip().empty()) GTEST_SKIP() << Place().skip();
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("TMPDIR", Place().folder().c_str(), 1);
    proxy_ = std::make_unique<FaultProxy>(Place().port(), http());
  }
  static bool http() { return std::string(GetParam()) == "s3"; }
  // Each test has a place of its own: a prefix or a database.
  std::vector<std::string> Flags(const std::string& node, std::vector<std::string> more = {}, int port = 0) const {
    if (port == 0) port = Place().port();
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    const std::string at = "127.0.0.1:" + std::to_string(port);
    more.insert(more.end(), {"--pot", "96", "--hand-over", "--node", node, "--snapshots",
                             http() ? "s3://weir/" + name.substr(0, name.find('/'))
                                    : "redis://" + at + "/" + std::to_string(3 + name.size() % 12)});
    if (http()) more.insert(more.end(), {"--s3-endpoint", "http://" + at});
    return more;
  }
  std::vector<std::string> Durable(const std::string& node, const std::string& lease = "3", int port = 0) const {
    return Flags(node, {"--durable", "--lease", lease}, port);
  }
  std::unique_ptr<FaultProxy> proxy_;
};

INSTANTIATE_TEST_SUITE_P(All, ServeStores, ::testing::Values("s3", "redis"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ServeStores, TheOtherServerGoesOnWithTheSameBytes) {
  std::vector<std::string> want;
  {
    const ServerProcess alone({"--pot", "96"});
    Client client(alone);
    const std::string id = client.Create();
    client.Talk(id, "sea");
    want = client.Talk(id, "man");
  }
  ServerProcess one(Flags("one"));
  const ServerProcess two(Flags("two"));
  Client client(one);
  const std::string id = client.Create();
  client.Talk(id, "sea");
  EXPECT_EQ(one.Terminate(), 0);
  EXPECT_EQ(Client(two).Talk(id, "man"), want);
}

TEST_P(ServeStores, SnapshotsAreSavedAndRestored) {
  const ServerProcess one(Flags("one"));
  Client client(one);
  const std::string id = client.Create();
  client.Append(id, Words(50, "sea"));
  const HttpAnswer saved = client.Do(id, "save", {{"name", "notes"}});
  EXPECT_EQ(saved.status, 200) << saved.body;
  const std::string want = client.Ask(id, "who?");
  const ServerProcess two(Flags("two"));
  const HttpAnswer restored = two.Post(kSessions + "/restore", {{"name", "notes"}});
  ASSERT_EQ(restored.status, 201) << restored.body;
  EXPECT_EQ(Client(two).Ask(restored.json()["id"], "who?"), want);
  const HttpAnswer none = two.Post(kSessions + "/restore", {{"name", "nothing"}});
  EXPECT_EQ(none.status, 404) << none.body;
}

TEST_P(ServeStores, AServerThatIsKilledLosesNothingItAcknowledged) {
  ServerProcess one(Durable("one"));
  const ServerProcess two(Durable("two"));
  Client client(one);
  const std::string id = client.Create();
  const Json seen = client.Append(id, Words(50, "sea"))["seen"];
  one.Kill();
  EXPECT_TRUE(Until([&] { return two.Get(kSessions + "/" + id).status == 200; }));
  EXPECT_EQ(Client(two).State(id)["seen"], seen);
}

// The session that waits for the store waits; nobody else does.
TEST_P(ServeStores, ASlowStoreHoldsUpItsSessionOnly) {
  const ServerProcess server(Durable("one", "30", proxy_->port()));
  Client client(server);
  const std::string slow = client.Create(), other = client.Create();
  proxy_->Do(Fault::kSlow, 1, 5000);
  std::chrono::duration<double> slow_took{0};
  std::thread waiting([&] {
    const auto start = Clock::now();
    client.Append(slow, Words(20, "sea"));
    slow_took = Clock::now() - start;
  });
  EXPECT_TRUE(Until([&] { return proxy_->n_faults() == 1; }));
  const auto start = Clock::now();
  EXPECT_EQ(server.Get("/health").status, 200);
  client.Append(other, Words(20, "man"));
  client.Ask(other, "who?");
  EXPECT_LT(SecondsSince(start), 3.5);
  waiting.join();
  EXPECT_GT(slow_took.count(), 4.0);
}

// A store that cannot be written to is no reason to say that something was stored.
TEST_P(ServeStores, WhatCannotBeStoredIsNotAcknowledged) {
  const ServerProcess server(Durable("one", "30", proxy_->port()));
  Client client(server);
  const std::string id = client.Create();
  const int64_t before = client.Append(id, Words(20, "sea"))["seen"];
  proxy_->Do(Fault::kError);
  const HttpAnswer failed = client.Do(id, "append", {{"text", Words(20, "man")}});
  EXPECT_EQ(failed.status, 409) << failed.body;
  EXPECT_EQ(failed.json()["error"]["code"], "cut_short");
  proxy_->Do(Fault::kNone);
  EXPECT_EQ(client.State(id)["seen"], before) << "it goes on from what the store has";
  EXPECT_GT(client.Append(id, Words(20, "man"))["seen"], before);
}

TEST(ServeStoresStart, AStoreThatIsNotThereEndsTheStartInOneLine) {
  setenv("AWS_ACCESS_KEY_ID", "key", 1);
  setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  const std::string model = SourceDir() + "/tests/golden/models/llama.gguf";
  for (const std::string place : {"redis://127.0.0.1:1/0", "s3://weir/x", "gs://weir/x"}) {
    const RunResult run = RunWeir({"serve", "-m", model, "--port", "0", "--snapshots", place, "--hand-over",
                                   "--s3-endpoint", "http://127.0.0.1:1"});
    EXPECT_EQ(run.code, 2) << place;
    EXPECT_EQ(Lines(run.err).size(), 1u) << run.err;
  }
}

}  // namespace
}  // namespace weir::testing
