// SPDX-License-Identifier: Apache-2.0
// Rules of sessions of the real server: what they bring, who reads it, and what becomes of them in a snapshot.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cli/process.h"
#include "serve/picture_client.h"
#include "serve/png.h"
#include "serve/server_process.h"
#include "serve/session_client.h"
#include "support/golden.h"

namespace weir::testing {
namespace {

// The tiny model says nothing sensible: every rise of its odds is an event here.
Json Eager(const std::string& when, const Json& more = Json::object()) {
  Json rule = {{"when", when}, {"on", 0.01}, {"off", 0}, {"least", -30}, {"begin", 1}, {"end", 1}, {"calibrate", 4}};
  rule.update(more);
  return rule;
}

class RulesTest : public ::testing::Test {
 protected:
  static std::string Path(const std::string& id, const std::string& what) { return kSessions + "/" + id + "/" + what; }
  static std::string Create(Client& client, int tokens = 96) { return client.Create({{"rule_tokens", tokens}}); }
  static void Live(Client& client, const std::string& id, int from, int to) {
    for (int i = from; i < to; ++i) client.Append(id, i % 3 == 0 ? "the man came " : "the sea and the sea ");
  }
  static Json List(const ServerProcess& server, const std::string& id) { return server.Get(Path(id, "rules")).json(); }
  // Events from one after `after` on, until the newest one came or the connection ended.
  static std::vector<Json> Events(const ServerProcess& server, const std::string& id, int64_t after, int64_t newest) {
    const int socket = server.Connect();
    const std::string request = "GET " + Path(id, "events") + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" +
                                (after > 0 ? "Last-Event-ID: " + std::to_string(after) + "\r\n" : "") + "\r\n";
    EXPECT_EQ(write(socket, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    timeval limit{20, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    std::string text;
    char buffer[4096];
    const std::string last = "id: " + std::to_string(newest) + "\n";
    for (size_t at = std::string::npos;;) {
      at = text.find(last);
      if (at != std::string::npos && text.find("\n\n", at) != std::string::npos) break;
      const ssize_t n = read(socket, buffer, sizeof(buffer));
      if (n <= 0) break;
      text.append(buffer, static_cast<size_t>(n));
    }
    close(socket);
    std::vector<Json> out;
    int64_t id_line = 0;
    for (const std::string& line : Lines(text)) {
      if (line.rfind("id: ", 0) == 0) id_line = std::stoll(line.substr(4));
      if (line.rfind("data: ", 0) != 0) continue;
      Json event = Json::parse(line.substr(6), nullptr, false);
      EXPECT_EQ(event["id"], id_line) << line;
      out.push_back(std::move(event));
    }
    return out;
  }
};

TEST_F(RulesTest, EventsAreReadFromAnyPlace) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const std::string id = Create(client);
  const HttpAnswer made = server.Post(Path(id, "rules"), Eager("who came? => the man", {{"id", "door"}}));
  ASSERT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(made.json()["state"], "learns");
  EXPECT_EQ(server.Post(Path(id, "rules"), Eager("what => sea")).json()["id"], "r1");
  Live(client, id, 0, 24);
  const Json list = List(server, id);
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["checks"], 24);
  EXPECT_NE(list["data"][0]["state"], "learns");
  const int64_t newest = list["last_event_id"];
  ASSERT_GE(newest, 2);
  EXPECT_EQ(client.State(id)["rules"]["last_event_id"], newest);
  const std::vector<Json> all = Events(server, id, 0, newest);
  ASSERT_EQ(std::ssize(all), newest);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["id"], static_cast<int64_t>(i) + 1);
    EXPECT_EQ(all[i]["session"], id);
    EXPECT_FALSE(all[i]["evidence"]["text"].get<std::string>().empty());
  }
  const std::vector<Json> rest = Events(server, id, newest - 1, newest);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0], all.back());
  // One that waits is told of what comes, and of the session's end.
  std::vector<Json> live;
  std::thread reader([&] { live = Events(server, id, newest, INT64_MAX); });
  Live(client, id, 24, 40);
  const int64_t later = List(server, id)["last_event_id"];
  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
  reader.join();
  EXPECT_EQ(std::ssize(live), later - newest);
}

TEST_F(RulesTest, ASessionSaysTheSameWithRules) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const std::string plain = Create(client), watched = Create(client);
  for (const char* when : {"who came? => the man", "what => sea"}) {
    ASSERT_EQ(server.Post(Path(watched, "rules"), Eager(when)).status, 201);
  }
  EXPECT_EQ(client.Talk(plain, "sea"), client.Talk(watched, "sea"));
  EXPECT_EQ(client.State(plain)["seen"], client.State(watched)["seen"]);
  EXPECT_EQ(client.State(plain)["kept"], client.State(watched)["kept"]);
}

TEST_F(RulesTest, SnapshotsAndForksGoOnWithTheRules) {
  const TempDir folder;
  // Where attention chooses what stays, this tiny model's scores go up and down often enough.
  const ServerProcess server(
      {"--pot", "96", "--policy", "weir:ratio=0.75,saddles=always", "--snapshots", folder.path(), "--budget", "16MiB"});
  Client client(server);
  const std::string id = Create(client);
  for (const char* when : {"who came? => the man", "what => sea", "where => the sea"}) {
    ASSERT_EQ(server.Post(Path(id, "rules"), Eager(when)).status, 201);
  }
  Live(client, id, 0, 6);
  ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
  const HttpAnswer forked = client.Do(id, "fork", Json::object());
  ASSERT_EQ(forked.status, 201) << forked.body;
  const HttpAnswer restored = server.Post(kSessions + "/restore", {{"name", "notes"}});
  ASSERT_EQ(restored.status, 201) << restored.body;
  const std::string copy = forked.json()["id"], back = restored.json()["id"];
  const int64_t before = List(server, id)["last_event_id"];
  EXPECT_EQ(List(server, back)["last_event_id"], before);
  for (const std::string& one : {id, copy, back}) Live(client, one, 6, 36);
  const int64_t newest = List(server, id)["last_event_id"];
  ASSERT_GT(newest, before);
  std::vector<Json> want = Events(server, id, 0, newest), got = Events(server, back, 0, newest);
  const std::vector<Json> of_copy = Events(server, copy, before, newest);
  ASSERT_EQ(want.size(), got.size());
  ASSERT_EQ(std::ssize(of_copy), newest - before);
  for (size_t i = 0; i < want.size(); ++i) {
    const bool old = static_cast<int64_t>(i) < before;
    if (!old) {
      EXPECT_EQ(got[i]["session"], back);
      EXPECT_EQ(of_copy[i - static_cast<size_t>(before)]["score"], want[i]["score"]);
    }
    want[i].erase("session");
    got[i].erase("session");
    EXPECT_EQ(want[i], got[i]);
  }
}

// The program goes on with a server's session and keeps what only the server uses of it.
TEST_F(RulesTest, AChatInBetweenKeepsTheRules) {
  const TempDir folder;
  const ServerProcess server({"--pot", "96", "--snapshots", folder.path()});
  Client client(server);
  const std::string id = Create(client);
  ASSERT_EQ(server.Post(Path(id, "rules"), Eager("who came? => the man")).status, 201);
  Live(client, id, 0, 24);
  ASSERT_EQ(client.Do(id, "save", {{"name", "notes"}}).status, 200);
  RunOptions options;
  options.input = "the sea\n";
  const RunResult chat =
      RunWeir({"chat", "-m", GoldenDir() + "llama.gguf", "-n", "4", "--session", folder.File("notes.weir")}, options);
  ASSERT_EQ(chat.code, 0) << chat.err;
  const HttpAnswer restored = server.Post(kSessions + "/restore", {{"name", "notes"}});
  ASSERT_EQ(restored.status, 201) << restored.body;
  EXPECT_GT(restored.json()["seen"], client.State(id)["seen"]);
  const Json before = List(server, id), after = List(server, restored.json()["id"]);
  EXPECT_EQ(after["data"].size(), 1u);
  ASSERT_GE(before["last_event_id"], 1);
  EXPECT_EQ(after["last_event_id"], before["last_event_id"]);
}

TEST_F(RulesTest, WhatIsRefused) {
  const ServerProcess server({"--pot", "96", "--connections", "4"});
  Client client(server);
  const std::string id = Create(client), plain = client.Create();
  const auto refused = [&](const std::string& session, const Json& body, int status, const std::string& word) {
    const HttpAnswer answer = server.Post(Path(session, "rules"), body);
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_NE(answer.body.find(word), std::string::npos) << answer.body;
  };
  refused(plain, Eager("a => b"), 400, "rule_tokens");
  refused("none", Eager("a => b"), 404, "none");
  refused(id, Json::object(), 400, "when");
  refused(id, Eager(""), 400, "without words");
  refused(id, Eager(std::string(1001, 'x')), 400, "1001 bytes");
  refused(id, Eager(Words(180, "sea") + "=> man"), 400, "fewer words");
  refused(id, Eager("the man came"), 400, "yes and no");
  {
    // A window in slots of its own sees less than the room that was asked for.
    const ServerProcess windows({"--pot", "96"}, "gpt_oss");
    Client other(windows);
    const HttpAnswer answer = windows.Post(Path(Create(other), "rules"), Eager(Words(12, "sea") + "=> man"));
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_NE(answer.body.find("fewer words"), std::string::npos) << answer.body;
  }
  refused(id, Eager("a => b", {{"id", "a b"}}), 400, "letters, digits");
  refused(id, Eager("a => b", {{"begin", 0}}), 400, "begin");
  refused(id, Eager("a => b", {{"webhook", "x"}}), 400, "webhook");
  for (int i = 0; i < 64; ++i) ASSERT_EQ(server.Post(Path(id, "rules"), Eager("a => b")).status, 201);
  refused(id, Eager("a => b"), 400, "the most that one stream can have");
  EXPECT_EQ(server.Delete(Path(id, "rules/r7")).status, 200);
  EXPECT_EQ(server.Delete(Path(id, "rules/r7")).status, 404);
  EXPECT_EQ(server.Post(Path(id, "rules"), Eager("a => b", {{"id", "r7"}})).status, 201);
  EXPECT_EQ(server.Get(Path(plain, "rules")).json()["data"].size(), 0u);
  EXPECT_EQ(server.Get(Path(plain, "events")).status, 400);
  EXPECT_EQ(server.Get(Path("none", "events")).status, 404);
  EXPECT_EQ(server.Post(kSessions, {{"rule_tokens", 5000}}).status, 400);
  EXPECT_EQ(client.Append(id, "the sea")["rules"]["count"], 64);
}

// Others have their turn between two rules: they see a text that was read, and whose check is not over yet.
TEST_F(RulesTest, ManyRulesHoldUpNobody) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const std::string id = Create(client);
  for (int i = 0; i < 64; ++i) ASSERT_EQ(server.Post(Path(id, "rules"), Eager("who came? => the man")).status, 201);
  bool seen_between = false;
  for (int i = 0; i < 20 && !seen_between; ++i) {
    const int64_t n_seen = client.State(id)["seen"], n_checks = List(server, id)["checks"];
    std::atomic<bool> done{false};
    std::thread writer([&] {
      client.Append(id, "the sea and the sea ");
      done = true;
    });
    while (!done && !seen_between) {
      const bool read = client.State(id)["seen"] > n_seen;
      seen_between = read && List(server, id)["checks"] == n_checks;
    }
    writer.join();
    EXPECT_EQ(List(server, id)["checks"], n_checks + 1);
  }
  EXPECT_TRUE(seen_between);
}

// A reader that takes nothing, and more readers than may read, hold up nobody.
// The width and height that a PNG file says.
std::pair<int, int> PngSides(const std::string& png) {
  if (!png.starts_with("\x89PNG\r\n\x1a\n") || png.size() < 24) return {0, 0};
  const auto number = [&](size_t at) {
    int out = 0;
    for (size_t i = 0; i < 4; ++i) out = out << 8 | static_cast<unsigned char>(png[at + i]);
    return out;
  };
  return {number(16), number(20)};
}

TEST_F(RulesTest, EventsHaveThePictureThatRaisedThem) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  const ServerProcess server(SeeingFlags({"--pot", "128", "--frames-waiting", "4"}), VisionFile("llava.gguf"));
  Client client(server);
  const std::string id = Create(client);
  ASSERT_EQ(server.Post(Path(id, "rules"), Eager("what is it => the man")).status, 201);
  const auto picture = [&](int64_t event) {
    return server.Get(Path(id, "events/" + std::to_string(event) + "/picture"));
  };
  EXPECT_EQ(picture(1).status, 404);
  // A text has none, and pictures have themselves.
  for (int i = 0; i < 24; ++i) client.Append(id, i % 3 == 0 ? "the man came " : "the sea and the sea ");
  const int64_t of_texts = List(server, id)["last_event_id"];
  ASSERT_GE(of_texts, 1);
  EXPECT_EQ(picture(1).status, 404);
  std::vector<std::string> shown = {"", ""};  // by event
  for (int i = 0; i < 24; ++i) {
    const std::string ppm = PpmBytes(20, 12, 10 * i);
    const HttpAnswer read = client.Do(id, "append", {{"image", DataUrl(ppm)}});
    ASSERT_EQ(read.status, 200) << read.body;
    const int64_t newest = List(server, id)["last_event_id"];
    if (newest == of_texts + std::ssize(shown) - 1) {
      const auto* const rgb = reinterpret_cast<const uint8_t*>(ppm.data()) + ppm.size() - 3 * 20 * 12;
      shown.push_back(*EncodePng({rgb, 20, 12}));
    }
  }
  const int64_t newest = List(server, id)["last_event_id"];
  ASSERT_GT(newest, of_texts);
  ASSERT_EQ(std::ssize(shown), newest - of_texts + 2);
  for (const Json& event : Events(server, id, 0, newest)) {
    const int64_t number = event["id"];
    EXPECT_EQ(event.contains("picture"), number > of_texts) << event;
    if (number <= of_texts || number + 16 <= newest) continue;
    const HttpAnswer answer = server.Get(event["picture"]);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.content_type, "image/png");
    EXPECT_TRUE(answer.body == shown[static_cast<size_t>(number - of_texts + 1)]) << number;
  }
  // Frames of a live video, and those that are waited for.
  int64_t events = newest;
  for (const bool waits : {false, true}) {
    const int64_t before = events;
    // One that learns what is usual now.
    ASSERT_EQ(server.Delete(Path(id, "rules/" + List(server, id)["data"][0]["id"].get<std::string>())).status, 200);
    ASSERT_EQ(server.Post(Path(id, "rules"), Eager("what is it => the man")).status, 201);
    for (int i = 0; i < 40 && events == before; ++i) {
      const int64_t t_ms = 1000 * i + (waits ? 100000 : 0);
      const Json frame = {
          {"frame", DataUrl(PpmBytes(waits ? 100 : 400, 200, 23 * i))}, {"t_ms", t_ms}, {"wait", waits}};
      ASSERT_EQ(client.Do(id, "append", frame).status, waits ? 200 : 202);
      if (!waits) WaitFor(server, id, [&](const Json& frames) { return frames["read"] == i + 1; });
      events = List(server, id)["last_event_id"];
    }
    ASSERT_GT(events, before);
    const auto [width, height] = PngSides(picture(events).body);
    EXPECT_GT(height, 4);
    EXPECT_EQ(width, height) << "this encoder is shown the square in the middle";
  }
  for (const char* bad : {"0", "-1", "x", "1x", "99999999999999999999"}) {
    EXPECT_EQ(server.Get(Path(id, std::string("events/") + bad + "/picture")).status, 400) << bad;
  }
  EXPECT_EQ(picture(events + 1).status, 404);
  EXPECT_EQ(server.Get(Path("none", "events/1/picture")).status, 404);
  // A fork has the rule, and pictures of its own.
  const std::string fork = client.Do(id, "fork", Json::object()).json()["id"];
  EXPECT_EQ(server.Get(Path(fork, "events/" + std::to_string(events) + "/picture")).status, 404);
}

TEST_F(RulesTest, AServerHasRoomForEightSessionsWithRulesByDefault) {
  const ServerProcess server(SeeingFlags({"--pot", "96"}), VisionFile("llava.gguf"));
  for (int i = 0; i < 8; ++i) {
    const HttpAnswer made = server.Post(kSessions, {{"rule_tokens", 192}});
    EXPECT_EQ(made.status, 201) << i << " " << made.body;
  }
}

TEST_F(RulesTest, ReadersAreFewAndHoldUpNobody) {
  ServerProcess server({"--pot", "96", "--connections", "4"});
  Client client(server);
  const std::string id = Create(client);
  ASSERT_EQ(server.Post(Path(id, "rules"), Eager("who came? => the man")).status, 201);
  const int silent = server.Connect();
  const std::string request = "GET " + Path(id, "events") + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  ASSERT_EQ(write(silent, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  // A request of others takes the place for a moment, too: this one has it first.
  timeval limit{20, 0};
  setsockopt(silent, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  char begun[12] = {};
  ASSERT_EQ(read(silent, begun, sizeof(begun)), static_cast<ssize_t>(sizeof(begun)));
  ASSERT_EQ(std::string(begun, sizeof(begun)), "HTTP/1.1 200");
  HttpAnswer other = server.Get(Path("none", "events"));
  EXPECT_EQ(other.status, 429) << other.body;
  Live(client, id, 0, 30);
  EXPECT_GE(List(server, id)["last_event_id"], 1);
  close(silent);
  // Its place is free once it is seen to be gone.
  for (int i = 0; i < 1000 && other.status == 429; ++i) {
    other = server.Get(Path("none", "events"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(ServerProcess({"--pot", "96", "--connections", "1"}).Get(Path("none", "events")).status, 400)
      << "a reader would have the only thread";
  // A reader does not keep the server from ending.
  std::thread reader([&] { Events(server, id, 0, INT64_MAX); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(server.Terminate(), 0);
  reader.join();
}

}  // namespace
}  // namespace weir::testing
