// SPDX-License-Identifier: Apache-2.0
// Recall in the real server: what left a session's pot comes back for a question, and what becomes of its archive when
// the session is copied, saved, moved, deleted or killed.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/process.h"
#include "io/snapshot_test_util.h"
#include "recall/archive.h"
#include "serve/server_process.h"
#include "serve/session_client.h"
#include "support/golden.h"

namespace weir::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFact = "The lighthouse keeper of Varnholm was called Ottoline Quistgaard.";
const std::string kQuestion = "Who was the lighthouse keeper of Varnholm?";

class RecallTest : public ::testing::Test {
 protected:
  RecallTest() { fs::create_directories(folder_ + "/saved"); }

  std::string dir() const { return folder_ + "/archives"; }
  std::vector<std::string> Flags(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> out = {"--pot",         "96",   "--recall",    "words",           "--recall-dir", dir(),
                                    "--recall-disk", "4MiB", "--snapshots", folder_ + "/saved"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  std::vector<std::string> Archives() const {
    std::vector<std::string> out;
    if (!fs::exists(dir())) return out;
    for (const auto& entry : fs::directory_iterator(dir())) out.push_back(entry.path().filename());
    std::sort(out.begin(), out.end());
    return out;
  }
  // Tells a session the fact, and then enough to push it out of the pot.
  static void TellAndForget(Client& client, const std::string& id, const std::string& fact = kFact) {
    client.Append(id, Words(60, "sea"));
    client.Append(id, fact);
    client.Append(id, Words(300, "man"));
  }
  static Json Asked(Client& client, const std::string& id, const std::string& question = kQuestion) {
    const HttpAnswer answer = client.Do(id, "ask", Question(question));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json()["weir"];
  }
  static bool BroughtBack(const Json& weir, const std::string& what) {
    for (const Json& passage : weir["recalled"]) {
      if (passage["text"].get<std::string>().find(what) != std::string::npos) return true;
    }
    return false;
  }

  const TempDir temp_;
  const std::string folder_ = temp_.path();
};

int64_t Metric(const ServerProcess& server, const std::string& name) {
  const std::string text = server.Get("/metrics").body;
  const size_t at = text.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name;
  return at == std::string::npos ? -1 : std::stoll(text.substr(at + name.size() + 2));
}

TEST_F(RecallTest, WhatLeftThePotComesBack) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string id = client.Create();
  EXPECT_EQ(Archives(), std::vector<std::string>{id});
  TellAndForget(client, id);
  const Json before = client.State(id);
  EXPECT_EQ(before["recall"]["tokens"], 24);
  EXPECT_EQ(before["states"]["held"], before["kept"]);
  EXPECT_EQ(before["states"]["gone"], 0);
  EXPECT_EQ(before["states"]["on_disk"], before["dropped"]);
  EXPECT_GT(before["states"]["on_disk"].get<int64_t>(), 0);

  const std::string wide = client.Create({{"recall_tokens", 200}});
  TellAndForget(client, wide);
  const int64_t held = client.State(wide)["kept"];
  const Json weir = Asked(client, wide);
  ASSERT_EQ(weir["recalled"].size(), 1u) << weir;
  EXPECT_TRUE(BroughtBack(weir, "Ottoline Quistgaard")) << weir;
  EXPECT_FALSE(weir.contains("recall"));
  EXPECT_GT(weir["recalled"][0]["score"].get<double>(), 0.5);
  EXPECT_LT(weir["recalled"][0]["seq"].get<int64_t>(), weir["recalled"][0]["end"].get<int64_t>());
  EXPECT_LE(client.State(wide)["kept"].get<int64_t>(), 96) << held;  // it was taken back
  EXPECT_EQ(client.State(wide)["pot"], 96);

  // Streamed, the last event says so.
  const auto events = client.Do(wide, "ask", Question(kQuestion, {{"stream", true}})).events();
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(BroughtBack(events.back()["weir"], "Ottoline Quistgaard")) << events.back();
  for (size_t i = 0; i + 1 < events.size(); ++i) EXPECT_FALSE(events[i].contains("weir"));

  EXPECT_EQ(Metric(server, "weir_recall_questions_total"), 2);
  EXPECT_EQ(Metric(server, "weir_recall_passages_total"), 2);
  EXPECT_GT(Metric(server, "weir_recall_archive_bytes"), 0);
  EXPECT_EQ(Metric(server, "weir_recall_reserved_bytes"), 2 * (4 << 20));
  EXPECT_EQ(Metric(server, "weir_recall_disk_bytes"), 8 * (4 << 20));

  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
  EXPECT_EQ(Archives(), std::vector<std::string>{wide});
  EXPECT_EQ(server.Delete(kSessions + "/" + wide).status, 200);
  EXPECT_TRUE(Archives().empty());
  EXPECT_EQ(Metric(server, "weir_recall_reserved_bytes"), 0);
}

TEST_F(RecallTest, WhyNothingCameBack) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string id = client.Create({{"recall_tokens", 200}});
  EXPECT_EQ(Asked(client, id, "where is Varnholm?")["recall"], "nothing");
  TellAndForget(client, id);
  EXPECT_EQ(Asked(client, id, "zyzzogeton brachiate quokkaland?")["recall"], "nothing");
  EXPECT_EQ(Asked(client, id, "is the keeper of bicycles in Patagonia fond of marmalade or trombones?")["recall"],
            "gate");
  const std::string recent = client.Create({{"recall_tokens", 200}});
  client.Append(recent, Words(100, "sea"));
  client.Append(recent, kFact);
  const Json held = Asked(client, recent);
  EXPECT_EQ(held["recall"], "held") << held;
  EXPECT_TRUE(held["recalled"].empty());
}

TEST_F(RecallTest, OffChangesNothing) {
  const ServerProcess with(Flags()), without({"--pot", "96"});
  Client a(with), b(without);
  const std::string off = a.Create({{"recall", "off"}}), on = a.Create(), plain = b.Create();
  EXPECT_EQ(Archives(), std::vector<std::string>{on});
  EXPECT_FALSE(a.State(off).contains("recall"));
  EXPECT_EQ(a.Talk(off, "sea"), b.Talk(plain, "sea"));
  const Json weir = Asked(b, plain);
  EXPECT_FALSE(weir.contains("recalled"));
  EXPECT_FALSE(weir.contains("recall"));
  // Without an archive, what left the pot is gone.
  const Json state = b.State(plain);
  EXPECT_EQ(state["states"]["gone"], state["dropped"]);
  // What is only read is read alike.
  const std::string x = a.Create(), y = b.Create();
  a.Append(x, Words(400, "sea"));
  b.Append(y, Words(400, "sea"));
  for (const char* key : {"seen", "kept", "dropped", "selections", "unbroken_from"}) {
    EXPECT_EQ(a.State(x)[key], b.State(y)[key]) << key;
  }
}

TEST_F(RecallTest, AnExcerptIsTakenBackWhateverEndsTheAnswer) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string id = client.Create({{"recall_tokens", 200}});
  TellAndForget(client, id);
  const std::string body = Question(kQuestion, {{"max_tokens", 100000000}, {"stream", true}}).dump();
  const std::string request = "POST " + kSessions + "/" + id +
                              "/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(body.size()) +
                              "\r\n\r\n" + body;
  const int asking = server.Connect();
  ASSERT_EQ(write(asking, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  char byte;
  ASSERT_EQ(read(asking, &byte, 1), 1);  // it answers
  close(asking);
  while (client.State(id)["busy"] == true) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  // A session with an excerpt in its pot could be neither saved nor copied.
  EXPECT_EQ(client.Do(id, "save", {{"name", "cut"}}).status, 200);
  EXPECT_EQ(client.Do(id, "fork", Json::object()).status, 201);
  EXPECT_TRUE(BroughtBack(Asked(client, id), "Ottoline"));
}

TEST_F(RecallTest, AForkRemembersForItself) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string a = client.Create({{"recall_tokens", 200}});
  TellAndForget(client, a);
  const HttpAnswer forked = client.Do(a, "fork", Json::object());
  ASSERT_EQ(forked.status, 201) << forked.body;
  const std::string b = forked.json()["id"];
  EXPECT_EQ(Archives().size(), 2u);
  TellAndForget(client, a, "The bell of Skarholt weighs nine tonnes.");
  TellAndForget(client, b, "The bell of Skarholt was cast by Ingvild Tranmael.");
  const std::string bell = "what of the bell of Skarholt?";
  EXPECT_TRUE(BroughtBack(Asked(client, a, bell), "nine tonnes"));
  EXPECT_FALSE(BroughtBack(Asked(client, a, bell), "Tranmael"));
  EXPECT_TRUE(BroughtBack(Asked(client, b, bell), "Tranmael"));
  EXPECT_FALSE(BroughtBack(Asked(client, b, bell), "nine tonnes"));
  // The parent's end takes nothing from the fork.
  EXPECT_EQ(server.Delete(kSessions + "/" + a).status, 200);
  EXPECT_EQ(Archives(), std::vector<std::string>{b});
  EXPECT_TRUE(BroughtBack(Asked(client, b), "Ottoline"));
}

TEST_F(RecallTest, ASavedSessionSurvivesAKill) {
  {
    ServerProcess server(Flags());
    Client client(server);
    const std::string id = client.Create({{"recall_tokens", 200}});
    TellAndForget(client, id);
    ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
    // What comes later is not part of what was saved.
    TellAndForget(client, id, "The bell of Skarholt weighs nine tonnes.");
    server.Kill();
  }
  {
    const ServerProcess server(Flags());
    Client client(server);
    for (int i = 0; i < 2; ++i) {  // twice: a snapshot stays as it is
      const HttpAnswer restored = server.Post(kSessions + "/restore", {{"name", "notes"}});
      ASSERT_EQ(restored.status, 201) << restored.body;
      EXPECT_FALSE(restored.json()["recall"].contains("note")) << restored.body;
      const std::string id = restored.json()["id"];
      EXPECT_EQ(restored.json()["states"]["gone"], 0);
      EXPECT_TRUE(BroughtBack(Asked(client, id), "Ottoline"));
      EXPECT_FALSE(BroughtBack(Asked(client, id, "what of the bell of Skarholt?"), "nine tonnes"));
      // It goes on, and its end does not touch the snapshot.
      TellAndForget(client, id, "The mill of Aastrup burned down in May.");
      EXPECT_TRUE(BroughtBack(Asked(client, id, "when did the mill of Aastrup burn?"), "burned down"));
      EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
    }
  }
}

TEST_F(RecallTest, ASnapshotHasOneArchive) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string id = client.Create({{"recall_tokens", 200}}), off = client.Create({{"recall", "off"}});
  TellAndForget(client, id);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
  ASSERT_EQ(client.Do(id, "save", {{"name", "notes.0123456789abcdef"}}).status, 200);
  EXPECT_EQ(Archives().size(), 3u);  // the session's and one a name
  ASSERT_EQ(client.Do(off, "save", {{"name", "notes"}}).status, 200);
  EXPECT_EQ(Archives().size(), 2u);
  // A snapshot that cannot be written leaves nothing behind.
  fs::create_directories(folder_ + "/saved/broken.weir");
  EXPECT_NE(client.Do(id, "save", {{"name", "broken"}}).status, 200);
  EXPECT_EQ(Archives().size(), 2u);
  // A session deleted after it was saved comes back whole.
  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
  const Json restored = server.Post(kSessions + "/restore", {{"name", "notes.0123456789abcdef"}}).json();
  EXPECT_TRUE(BroughtBack(Asked(client, restored["id"]), "Ottoline"));
}

TEST_F(RecallTest, WithoutItsArchiveASessionGoesOnAndSaysSo) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string id = client.Create({{"recall_tokens", 200}});
  TellAndForget(client, id);
  ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
  for (const std::string& name : Archives()) {
    if (name != id) fs::remove_all(dir() + "/" + name);
  }
  const HttpAnswer restored = server.Post(kSessions + "/restore", {{"name", "notes"}});
  ASSERT_EQ(restored.status, 201) << restored.body;
  const Json state = restored.json();
  EXPECT_NE(state["recall"]["note"].get<std::string>().find("its archive is gone"), std::string::npos) << state;
  EXPECT_EQ(state["states"]["on_disk"], 0) << state;
  EXPECT_EQ(state["states"]["gone"], state["dropped"]);
  const std::string back = state["id"];
  EXPECT_TRUE(Asked(client, back)["recalled"].empty());
  TellAndForget(client, back, "The mill of Aastrup burned down in May.");
  EXPECT_TRUE(BroughtBack(Asked(client, back, "when did the mill of Aastrup burn?"), "burned down"));
  EXPECT_GT(client.State(back)["states"]["on_disk"].get<int64_t>(), 0);
}

TEST_F(RecallTest, FilesWithoutNamesEndWithTheServer) {
  const ServerProcess server(
      {"--pot", "96", "--recall", "words", "--recall-disk", "4MiB", "--snapshots", folder_ + "/saved"});
  Client client(server);
  const std::string id = client.Create({{"recall_tokens", 200}});
  TellAndForget(client, id);
  EXPECT_TRUE(BroughtBack(Asked(client, id), "Ottoline"));
  const std::string fork = client.Do(id, "fork", Json::object()).json()["id"];
  EXPECT_TRUE(BroughtBack(Asked(client, fork), "Ottoline"));
  ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
  const Json restored = server.Post(kSessions + "/restore", {{"name", "notes"}}).json();
  EXPECT_NE(restored["recall"]["note"].get<std::string>().find("its archive is gone"), std::string::npos) << restored;
}

TEST_F(RecallTest, AHandOverCarriesTheArchive) {
  const std::vector<std::string> flags = Flags({"--hand-over", "--drain", "5"});
  std::string id;
  {
    ServerProcess first(flags);
    Client client(first);
    id = client.Create({{"recall_tokens", 200}});
    TellAndForget(client, id);
    EXPECT_EQ(first.Terminate(), 0);
  }
  EXPECT_EQ(Archives(), std::vector<std::string>{id});
  const ServerProcess second(flags);
  Client client(second);
  EXPECT_TRUE(BroughtBack(Asked(client, id), "Ottoline"));
  EXPECT_FALSE(client.State(id)["recall"].contains("note")) << client.State(id);
  EXPECT_EQ(second.Delete(kSessions + "/" + id).status, 200);
  EXPECT_TRUE(Archives().empty());
}

TEST_F(RecallTest, AnIdleSessionLeavesItsArchiveWhereItIs) {
  const ServerProcess server(Flags({"--hand-over", "--session-idle", "1"}));
  Client client(server);
  const std::string id = client.Create({{"recall_tokens", 200}});
  TellAndForget(client, id);
  for (int i = 0; i < 400 && !server.Get(kSessions).json()["data"].empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(Archives(), std::vector<std::string>{id});
  EXPECT_TRUE(BroughtBack(Asked(client, id), "Ottoline"));
}

TEST_F(RecallTest, AServerThatEndsDeletesItsSessionsArchives) {
  ServerProcess server(Flags());
  Client client(server);
  const std::string id = client.Create();
  client.Append(id, Words(200, "sea"));
  EXPECT_EQ(Archives().size(), 1u);
  EXPECT_EQ(server.Terminate(), 0);
  EXPECT_TRUE(Archives().empty());
}

// What a killed server left behind goes when the next one starts; nothing else does.
TEST_F(RecallTest, WhatAKilledServerLeftIsSwept) {
  std::string kept, copy;
  {
    ServerProcess server(Flags());
    Client client(server);
    kept = client.Create();
    client.Append(kept, Words(200, "sea"));
    for (const char* name : {"notes", "gone"}) ASSERT_EQ(client.Do(kept, "save", {{"name", name}}).status, 200);
    server.Kill();
  }
  ASSERT_EQ(Archives().size(), 3u);
  fs::remove(folder_ + "/saved/gone.weir");
  // An archive that no server made, another folder, and one that somebody has open.
  Ledger ledger;
  const std::string foreign = dir() + "/foreign", open = dir() + "/s-open";
  ASSERT_TRUE(Archive::Make({.dir = foreign}, ledger).ok());
  const auto held = Archive::Make({.dir = open, .owner = folder_ + "/saved/handover/s-open.weir"}, ledger);
  ASSERT_TRUE(held.ok());
  fs::create_directories(dir() + "/mine");
  { const ServerProcess lately(Flags()); }
  EXPECT_EQ(Archives().size(), 6u);  // they changed a moment ago: somebody may be about to hand them over
  for (const std::string& name : Archives()) {
    fs::last_write_time(dir() + "/" + name, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  const ServerProcess server(Flags());
  std::vector<std::string> left = Archives();
  ASSERT_EQ(left.size(), 4u) << Json(left);
  EXPECT_EQ(std::count(left.begin(), left.end(), kept), 0);
  EXPECT_EQ(std::count_if(left.begin(), left.end(), [](const auto& name) { return name.starts_with("notes."); }), 1);
  EXPECT_EQ(server.Post(kSessions + "/restore", {{"name", "notes"}}).status, 201);
}

TEST_F(RecallTest, AnArchiveThatCannotBeOpenedEndsWithItsSession) {
  const std::vector<std::string> flags = Flags({"--hand-over", "--drain", "5"});
  std::string id;
  {
    ServerProcess server(flags);
    Client client(server);
    id = client.Create();
    client.Append(id, Words(200, "sea"));
    EXPECT_EQ(server.Terminate(), 0);
  }
  ASSERT_EQ(Archives(), std::vector<std::string>{id});
  const ServerProcess server(flags);
  {
    Ledger ledger;
    const auto held = Archive::Open({.dir = dir() + "/" + id}, ledger);
    ASSERT_TRUE(held.ok()) << held.status().message();
    const HttpAnswer state = server.Get(kSessions + "/" + id);
    ASSERT_EQ(state.status, 200) << state.body;
    EXPECT_NE(state.json()["recall"]["note"].get<std::string>().find("cannot be used"), std::string::npos);
    EXPECT_EQ(state.body.find(folder_), std::string::npos) << state.body;
  }
  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
  EXPECT_TRUE(Archives().empty());
}

TEST_F(RecallTest, CopiesOfSnapshotsCount) {
  std::vector<std::string> flags = Flags({"--recall-disk-total", "3MiB"});
  *(std::ranges::find(flags, "--recall-disk") + 1) = "2MiB";
  {
    const ServerProcess server(flags);
    Client client(server);
    const std::string id = client.Create();
    client.Append(id, Words(400, "sea"));
    const int64_t before = Metric(server, "weir_recall_reserved_bytes");
    ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
    const int64_t with = Metric(server, "weir_recall_reserved_bytes");
    EXPECT_GT(with, before);
    ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
    EXPECT_EQ(Metric(server, "weir_recall_reserved_bytes"), with);  // it took the place of the first
    EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
    EXPECT_EQ(Metric(server, "weir_recall_reserved_bytes"), with - before);
  }
  const ServerProcess server(flags);
  EXPECT_GT(Metric(server, "weir_recall_reserved_bytes"), 0);
  EXPECT_EQ(server.Post(kSessions, {{"recall_disk", 3 << 20}}).status, 429);
}

TEST_F(RecallTest, KeysAndValuesOfCopiesCountAfterARestart) {
  std::vector<std::string> flags = Flags({"--policy", "streaming_llm", "--recall-disk-total", "64MiB"});
  *(std::ranges::find(flags, "--recall") + 1) = "both:restore=kv";
  *(std::ranges::find(flags, "--recall-disk") + 1) = "16MiB";
  int64_t copy = 0;
  {
    const ServerProcess server(flags);
    Client client(server);
    const std::string id = client.Create();
    client.Append(id, Words(400, "sea"));
    ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
    EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
    copy = Metric(server, "weir_recall_reserved_bytes");
    EXPECT_GT(copy, 100000);
  }
  const ServerProcess server(flags);
  EXPECT_GE(Metric(server, "weir_recall_reserved_bytes"), copy);
}

TEST_F(RecallTest, ExcerptsThatWereTakenBackAreNowhere) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string id = client.Create({{"recall_tokens", 200}});
  TellAndForget(client, id);
  const Json weir = Asked(client, id);
  ASSERT_TRUE(BroughtBack(weir, "Ottoline"));
  const Json state = client.State(id);
  const int64_t n = state["states"]["held"].get<int64_t>() + state["states"]["on_disk"].get<int64_t>() +
                    state["states"]["gone"].get<int64_t>();
  EXPECT_LT(n, state["seen"].get<int64_t>() - 10);
  EXPECT_EQ(state["states"]["gone"], 0) << state;
}

TEST_F(RecallTest, TheQuotaDropsTheOldestAndSaysSo) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string id = client.Create({{"recall_tokens", 200}, {"recall_disk", 512 << 10}});
  client.Append(id, kFact);
  for (int i = 0; i < 10; ++i) client.Append(id, Words(12000, "sea"));
  const Json state = client.State(id);
  EXPECT_LE(state["recall"]["bytes"].get<int64_t>(), 512 << 10);
  EXPECT_GT(state["recall"]["from"].get<int64_t>(), 0);
  EXPECT_GT(state["states"]["gone"].get<int64_t>(), 0);
  EXPECT_GT(state["states"]["on_disk"].get<int64_t>(), 0);
  EXPECT_EQ(state["states"]["held"], state["kept"]);
  EXPECT_EQ(state["states"]["held"].get<int64_t>() + state["states"]["on_disk"].get<int64_t>() +
                state["states"]["gone"].get<int64_t>(),
            state["seen"].get<int64_t>());
  EXPECT_NE(state["recall"]["note"].get<std::string>().find("removed to stay within"), std::string::npos);
  EXPECT_TRUE(Asked(client, id)["recalled"].empty());

  const Json map = server.Get(kSessions + "/" + id + "/held?bins=32").json();
  int64_t sums[3] = {};
  for (size_t bin = 0; bin < map["bins"].get<size_t>(); ++bin) {
    int64_t here = 0, i = 0;
    for (const char* name : {"held", "on_disk", "gone"}) {
      const int64_t n = map["states"][name][bin];
      EXPECT_GE(n, 0);
      here += n;
      sums[i++] += n;
    }
    EXPECT_LE(here, map["tokens_per_bin"].get<int64_t>());
  }
  EXPECT_EQ(sums[0], map["kept"].get<int64_t>());
  EXPECT_EQ(sums[0] + sums[1] + sums[2], map["seen"].get<int64_t>());
  EXPECT_GT(map["states"]["gone"][0].get<int64_t>(), 0);  // the beginning
}

TEST_F(RecallTest, TheDiskOfAllSessionsHasALimit) {
  const ServerProcess server(Flags({"--recall-disk-total", "10MiB"}));
  Client client(server);
  const std::string a = client.Create(), b = client.Create();
  const HttpAnswer third = server.Post(kSessions, Json::object());
  EXPECT_EQ(third.status, 429) << third.body;
  EXPECT_EQ(third.json()["error"]["code"], "budget_exceeded");
  EXPECT_EQ(server.Get(kSessions).json()["data"].size(), 2u);
  EXPECT_EQ(client.Do(a, "fork", Json::object()).status, 429);
  EXPECT_EQ(server.Get(kSessions).json()["data"].size(), 2u);
  const std::string off = client.Create({{"recall", "off"}});  // needs none
  EXPECT_EQ(client.Create({{"recall_disk", 2 << 20}}).rfind("s-", 0), 0u);
  EXPECT_EQ(server.Delete(kSessions + "/" + b).status, 200);
  EXPECT_EQ(client.Do(a, "fork", Json::object()).status, 201);
  EXPECT_EQ(Archives().size(), 3u);
}

TEST_F(RecallTest, WrongRequestsAreRefusedInOneLine) {
  const ServerProcess server(Flags());
  const std::vector<Json> wrong = {
      {{"recall", "wrods"}},
      {{"recall", "words:passages=99"}},
      {{"recall", "words:colour=3"}},
      {{"recall", 3}},
      {{"recall", std::string(5000, 'w')}},
      {{"recall_disk", 1000}},
      {{"recall_disk", int64_t{1} << 40}},
      {{"recall_disk", "4MiB"}},
      {{"recall_tokens", 0}},
      {{"recall_tokens", -3}},
      {{"recall", "off"}, {"recall_tokens", 30}},
      {{"recall", "off"}, {"recall_disk", 1 << 20}},
  };
  for (const Json& body : wrong) {
    const HttpAnswer answer = server.Post(kSessions, body);
    EXPECT_EQ(answer.status, 400) << body << answer.body;
    const std::string message = answer.json()["error"]["message"];
    EXPECT_NE(message.find("'recall"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_EQ(message.find(folder_), std::string::npos);
  }
  EXPECT_TRUE(Archives().empty());
  EXPECT_TRUE(server.Get(kSessions).json()["data"].empty());
  EXPECT_EQ(server.Post(kSessions, {{"recall", "words:passages=3"}}).status, 201);

  const ServerProcess without({"--pot", "96"});
  EXPECT_EQ(without.Get("/props").json()["recall"], nullptr);
  const HttpAnswer refused = without.Post(kSessions, {{"recall", "words"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("--recall"), std::string::npos) << refused.body;
  EXPECT_EQ(without.Post(kSessions, {{"recall", "off"}}).status, 201);
}

TEST_F(RecallTest, AServerMayLeaveItToItsSessions) {
  const ServerProcess server({"--pot", "96", "--recall-disk-total", "4MiB", "--recall-dir", dir()});
  Client client(server);
  EXPECT_FALSE(client.State(client.Create()).contains("recall"));
  EXPECT_EQ(server.Get("/props").json()["recall"]["selector"], "off");
  const std::string id = client.Create({{"recall", "words"}, {"recall_tokens", 200}, {"recall_disk", 1 << 20}});
  TellAndForget(client, id);
  EXPECT_TRUE(BroughtBack(Asked(client, id), "Ottoline"));
}

// A snapshot says which archive is its own; one that somebody else wrote may say anything.
TEST_F(RecallTest, ASnapshotNamesNoOtherArchive) {
  const ServerProcess server(Flags());
  Client client(server);
  const std::string victim = client.Create({{"recall_tokens", 200}}), id = client.Create({{"recall_tokens", 200}});
  TellAndForget(client, victim);
  client.Append(id, Words(400, "sea"));
  ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
  const std::string outside = folder_ + "/outside.0123456789abcdef";
  fs::copy(dir() + "/" + victim, outside, fs::copy_options::recursive);
  const auto files = [](const std::string& folder) {
    std::vector<std::pair<std::string, uintmax_t>> out;
    for (const auto& entry : fs::directory_iterator(folder)) out.emplace_back(entry.path(), entry.file_size());
    std::sort(out.begin(), out.end());
    return out;
  };
  const auto before = files(outside);
  const std::string path = folder_ + "/saved/notes.weir";
  const auto good = ReadSnapshot(path, int64_t{1} << 30);
  ASSERT_TRUE(good.ok()) << good.status().message();
  for (const std::string& archive :
       std::vector<std::string>{victim, "../outside.0123456789abcdef", outside, ".", ".."}) {
    Json note = Json::parse(good->text);
    note["recall"]["archive"] = archive;
    ASSERT_TRUE(WriteSnapshot(path, note.dump(), good->state).ok());
    const HttpAnswer restored = server.Post(kSessions + "/restore", {{"name", "notes"}});
    ASSERT_EQ(restored.status, 201) << restored.body;
    const std::string back = restored.json()["id"];
    EXPECT_NE(restored.body.find("its archive is gone"), std::string::npos) << archive << restored.body;
    EXPECT_TRUE(Asked(client, back)["recalled"].empty()) << archive;
    EXPECT_EQ(server.Delete(kSessions + "/" + back).status, 200);
  }
  EXPECT_EQ(files(outside), before);
  // Nor is the copy of another session's snapshot its own.
  ASSERT_EQ(client.Do(victim, "save", {{"name", "victims"}}).status, 200);
  const auto victims = ReadSnapshot(folder_ + "/saved/victims.weir", int64_t{1} << 30);
  ASSERT_TRUE(victims.ok());
  Json swapped = Json::parse(good->text);
  swapped["recall"]["archive"] = Json::parse(victims->text)["recall"]["archive"];
  ASSERT_TRUE(WriteSnapshot(path, swapped.dump(), good->state).ok());
  const HttpAnswer restored = server.Post(kSessions + "/restore", {{"name", "notes"}});
  ASSERT_EQ(restored.status, 201) << restored.body;
  EXPECT_NE(restored.body.find("not the archive that this session was saved with"), std::string::npos) << restored.body;
  EXPECT_TRUE(Asked(client, restored.json()["id"])["recalled"].empty());
  for (const char* bad : {R"({"selector": "words"})", R"({"selector": "wrods", "disk": 4194304, "archive": ""})", "3",
                          R"({"selector": "words", "disk": -1, "archive": ""})"}) {
    Json note = Json::parse(good->text);
    note["recall"] = Json::parse(bad);
    ASSERT_TRUE(WriteSnapshot(path, note.dump(), good->state).ok());
    EXPECT_EQ(server.Post(kSessions + "/restore", {{"name", "notes"}}).status, 400) << bad;
  }
  EXPECT_TRUE(BroughtBack(Asked(client, victim), "Ottoline"));
}

TEST_F(RecallTest, TheServerRefusesToBeginWithout) {
  const auto ends = [](const std::vector<std::string>& more, const std::string& says) {
    std::vector<std::string> argv = {"serve", "-m", GoldenDir() + "llama.gguf", "--port", "0", "--pot", "96"};
    argv.insert(argv.end(), more.begin(), more.end());
    const RunResult result = RunWeir(argv);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  };
  ends({"--recall-dir", dir()}, "--recall");
  ends({"--recall", "wrods"}, "wrods");
  ends({"--recall", "words", "--recall-disk", "4KiB"}, "too small");
  ends({"--recall", "words", "--recall-disk", "4MiB", "--recall-disk-total", "2MiB"}, "larger than");
  ends({"--recall", "words", "--snapshots", folder_, "--hand-over"}, "--recall-dir");
  std::ofstream(folder_ + "/file") << "x";
  ends({"--recall", "words", "--recall-dir", folder_ + "/file"}, folder_ + "/file");
}

}  // namespace
}  // namespace weir::testing
