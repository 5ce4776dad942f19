// SPDX-License-Identifier: Apache-2.0
// What the web page asks of the real server: its own files, the map of a part of a stream, and what a place of it says.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "cli/process.h"
#include "serve/server_process.h"
#include "serve/session_client.h"
#include "support/golden.h"

namespace weir::testing {
namespace {

const std::string kFact = "The lighthouse keeper of Varnholm was called Ottoline Quistgaard.";

Json Get(const ServerProcess& server, const std::string& path) {
  const HttpAnswer answer = server.Get(path);
  EXPECT_EQ(answer.status, 200) << path << ": " << answer.body;
  return answer.status == 200 ? answer.json() : Json();
}

int64_t Sum(const Json& counts) {
  int64_t sum = 0;
  for (const Json& n : counts) sum += n.get<int64_t>();
  return sum;
}

TEST(Page, IsMadeOfItsFilesAndNothingElse) {
  const ServerProcess server({"--pot", "96", "--api-key", "secret"});
  const HttpAnswer page = server.Get("/");
  ASSERT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  for (const char* foreign : {"http://", "https://", "<script>", "<style>", "style=", "onclick="}) {
    EXPECT_EQ(page.body.find(foreign), std::string::npos) << foreign;
  }
  // Every file that it names is there without a key, of a type that browsers take.
  size_t n_files = 0;
  for (size_t at = 0; (at = page.body.find("\"page/", at)) != std::string::npos; ++n_files) {
    const size_t end = page.body.find('"', at + 1);
    const std::string path = "/" + page.body.substr(at + 1, end - at - 1);
    const HttpAnswer file = server.Get(path);
    EXPECT_EQ(file.status, 200) << path;
    EXPECT_EQ(file.content_type, path.ends_with(".js") ? "text/javascript; charset=utf-8" : "text/css; charset=utf-8")
        << path;
    at = end;
  }
  EXPECT_GE(n_files, 3u);
  EXPECT_EQ(server.Get("/page/story.txt").status, 200);
  EXPECT_EQ(server.Get("/page/none.js").status, 404);
  EXPECT_EQ(server.Get("/page/..%2Fpage.h", "secret").status, 404);
}

TEST(Page, RunsNoScriptButItsOwn) {
  const ServerProcess server({"--pot", "96"});
  for (const char* path : {"/", "/page/main.js"}) {
    const std::string answer =
        server.Raw(std::string("GET ") + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    const std::string head = answer.substr(0, answer.find("\r\n\r\n"));
    EXPECT_NE(head.find("Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self';"),
              std::string::npos)
        << head;
    EXPECT_EQ(head.find("unsafe"), std::string::npos) << head;
    EXPECT_NE(head.find("X-Content-Type-Options: nosniff"), std::string::npos) << head;
  }
}

TEST(HeldMap, OfAPartOfTheStream) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const std::string id = client.Create({{"policy", "h2o"}}), path = kSessions + "/" + id + "/held?bins=8";
  client.Append(id, Words(400, "sea"));
  const Json whole = Get(server, path);
  const int64_t seen = whole["seen"];
  EXPECT_EQ(whole["from"], 0);
  EXPECT_EQ(whole["to"], seen);
  // Its halves have together what it has.
  const std::string middle = std::to_string(seen / 2);
  const Json first = Get(server, path + "&to=" + middle), second = Get(server, path + "&from=" + middle);
  EXPECT_EQ(first["to"], seen / 2);
  EXPECT_EQ(second["to"], seen);
  for (const char* state : {"held", "gone"}) {
    EXPECT_EQ(Sum(first["states"][state]) + Sum(second["states"][state]), Sum(whole["states"][state])) << state;
  }
  EXPECT_GT(Sum(second["states"]["held"]), 0);
  // A part of one token, and parts behind the end.
  const Json last = Get(server, path + "&from=" + std::to_string(seen - 1));
  EXPECT_EQ(last["bins"], 1);
  EXPECT_EQ(last["states"]["held"], Json::array({1}));
  const Json none = Get(server, path + "&from=" + std::to_string(seen + 5));
  EXPECT_EQ(none["bins"], 0);
  for (const char* wrong : {"&from=-1", "&from=x", "&to=", "&from=9&to=8", "&from=99999999999999999999"}) {
    EXPECT_EQ(server.Get(path + wrong).status, 400) << wrong;
  }
}

// Every token of a range is in one run, and the runs say what the counts say.
TEST(Tokens, SayWhatIsHeldAndCountAll) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  for (const char* policy : {"streaming_llm", "tova"}) {
    const std::string id = client.Create({{"policy", policy}}), path = kSessions + "/" + id + "/tokens";
    client.Append(id, Words(200, "sea"));
    client.Append(id, "the end of it");
    const Json state = client.State(id), part = Get(server, path);
    int64_t at = 0, held = 0;
    std::string newest;
    for (const Json& run : part["runs"]) {
      EXPECT_EQ(run["from"], at) << run;
      at = run["to"];
      const bool here = run["state"] == "held";
      if (here) held += at - run["from"].get<int64_t>();
      EXPECT_EQ(run.contains("text"), here) << run;
      if (here) newest = run["text"];
      if (here) {
        EXPECT_GT(run["layers"].get<double>(), 0) << run;
        EXPECT_LE(run["layers"], part["layers"]) << run;
      }
    }
    EXPECT_EQ(at, state["seen"]);
    EXPECT_EQ(held, state["kept"]);
    EXPECT_TRUE(newest.ends_with("the end of it")) << newest;
    EXPECT_TRUE(part["passages"].empty());
    const Json few = Get(server, path + "?from=10&to=13");
    EXPECT_EQ(few["from"], 10);
    EXPECT_EQ(few["runs"].front()["from"], 10);
    EXPECT_EQ(few["runs"].back()["to"], 13);
    EXPECT_TRUE(Get(server, path + "?from=100000")["runs"].empty());
    for (const char* wrong : {"?from=-1", "?from=5&to=4", "?from=0&to=1025", "?to=x"}) {
      EXPECT_EQ(server.Get(path + wrong).status, 400) << wrong;
    }
  }
  EXPECT_EQ(server.Get(kSessions + "/none/tokens").status, 404);
}

TEST(Tokens, OfAnArchiveAreItsPassages) {
  const TempDir dir;
  const ServerProcess server(
      {"--pot", "96", "--recall", "words", "--recall-dir", dir.File("archives"), "--recall-disk", "4MiB"});
  Client client(server);
  const std::string id = client.Create({{"policy", "window"}}), path = kSessions + "/" + id + "/tokens";
  client.Append(id, kFact);
  client.Append(id, Words(300, "man"));
  const Json part = Get(server, path + "?from=2&to=6");
  ASSERT_EQ(part["runs"].size(), 1u) << part;
  EXPECT_EQ(part["runs"][0]["state"], "on_disk");
  ASSERT_FALSE(part["passages"].empty()) << part;
  const Json& passage = part["passages"][0];
  EXPECT_LE(passage["from"], 2);
  EXPECT_GT(passage["to"], 2);
  EXPECT_EQ(passage["role"], "input");
  EXPECT_EQ(passage["text"].get<std::string>().rfind("The lighthouse keeper", 0), 0u) << passage;
}

}  // namespace
}  // namespace weir::testing
