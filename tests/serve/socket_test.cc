// SPDX-License-Identifier: Apache-2.0
// A session over a WebSocket, with the real server: requests, frames and events, and clients that do it wrong.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cli/process.h"
#include "serve/picture_client.h"
#include "serve/server_process.h"
#include "serve/session_client.h"
#include "serve/socket_client.h"
#include "support/golden.h"
#include "support/sanitizers.h"

namespace weir::testing {
namespace {

std::string SocketOf(const std::string& id) { return kSessions + "/" + id + "/socket"; }

// The tiny model says nothing sensible: every rise of its odds is an event here.
Json EagerRule(const std::string& id, const std::string& when = "who came? => the man") {
  return {{"type", "rule"}, {"id", id},   {"when", when}, {"on", 0.01},    {"off", 0},
          {"least", -30},   {"begin", 1}, {"end", 1},     {"calibrate", 4}};
}

class SocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const ServerProcess server;
    Client client(server);
    if (SocketClient(server, SocketOf(client.Create())).status() == 501) {
      GTEST_SKIP() << "this build has no WebSocket: libboost-dev is missing";
    }
  }
};

TEST_F(SocketTest, AnswersAreThoseOfTheOtherAddress) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const std::string by_http = client.Create(), by_socket = client.Create();
  SocketClient socket(server, SocketOf(by_socket));
  ASSERT_TRUE(socket.open()) << socket.head();
  // The answer to the key of RFC 6455's own example.
  EXPECT_NE(socket.head().find("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), std::string::npos) << socket.head();
  EXPECT_EQ(socket.Next("session")["session"]["id"], by_socket);
  for (int round = 0; round < 3; ++round) {
    const std::string words = Words(40 + 30 * round, "sea");
    client.Append(by_http, words);
    ASSERT_TRUE(socket.Say({{"type", "append"}, {"id", round}, {"text", words}}));
    const Json appended = socket.Next("appended");
    EXPECT_EQ(appended["id"], round);
    EXPECT_EQ(appended["session"]["seen"], client.State(by_http)["seen"]);
    Json question = Question("what of the sea?");
    question.update({{"type", "ask"}, {"id", "q"}});
    ASSERT_TRUE(socket.Say(question));
    std::vector<Json> words_of_it;
    const Json answer = socket.Next("answer", &words_of_it);
    std::string text;
    for (const Json& part : words_of_it) {
      EXPECT_EQ(part["type"], "words");
      EXPECT_EQ(part["id"], "q");
      text += part["text"].get<std::string>();
    }
    EXPECT_EQ(text, client.Ask(by_http, "what of the sea?"));
    EXPECT_EQ(answer["finish_reason"], "length");
    EXPECT_EQ(answer["usage"]["completion_tokens"], 16);
    EXPECT_EQ(answer["weir"]["seen"], client.State(by_http)["seen"]);
  }
}

TEST_F(SocketTest, EventsComeAndAreGoneOnWith) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const std::string id = client.Create({{"rule_tokens", 96}});
  int64_t newest = 0;
  std::vector<Json> events;
  {
    SocketClient socket(server, SocketOf(id));
    EXPECT_EQ(socket.Next("session")["last_event_id"], 0);
    ASSERT_TRUE(socket.Say(EagerRule("door")));
    EXPECT_EQ(socket.Next("rule")["rule"]["id"], "door");
    ASSERT_TRUE(socket.Say(EagerRule("gate", "what => sea")));
    EXPECT_EQ(socket.Next("rule")["rule"]["id"], "gate");
    for (int i = 0; i < 24; ++i) {
      ASSERT_TRUE(socket.Say({{"type", "append"}, {"text", i % 3 == 0 ? "the man came " : "the sea and the sea "}}));
      ASSERT_FALSE(socket.Next("appended", &events).is_null());
    }
    ASSERT_TRUE(socket.Say({{"type", "forget"}, {"rule", "door"}}));
    EXPECT_EQ(socket.Next("rule", &events)["rule"]["deleted"], true);
    ASSERT_TRUE(socket.Say({{"type", "forget"}, {"rule", "door"}}));
    EXPECT_EQ(socket.Next("error", &events)["status"], 404);
    newest = client.State(id)["rules"]["last_event_id"];
    while (std::ssize(events) < newest) events.push_back(socket.Next("event"));
  }
  ASSERT_GE(newest, 2);
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["id"], static_cast<int64_t>(i) + 1);
  SocketClient again(server, SocketOf(id) + "?last_event_id=" + std::to_string(newest - 1));
  EXPECT_EQ(again.Next("event"), events.back());
  // The session ends under it.
  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
  EXPECT_EQ(again.CloseCode(), 1001);
}

TEST_F(SocketTest, FramesAreSeen) {
  const ServerProcess server(SeeingFlags({"--pot", "128"}), VisionFile("llava.gguf"));
  Client client(server);
  const std::string id = client.Create();
  SocketClient socket(server, SocketOf(id));
  ASSERT_FALSE(socket.Next("session").is_null());
  const auto read = [&](int n) {
    WaitFor(server, id, [n](const Json& frames) { return frames["read"] == n && frames["waiting"] == 0; });
  };
  const std::string picture = PpmBytes(60, 40, 7);
  ASSERT_TRUE(socket.Show(1000, picture));
  read(1);
  ASSERT_TRUE(socket.Say({{"type", "format"}, {"format", "rgb"}, {"width", 20}, {"height", 10}}));
  ASSERT_TRUE(socket.Show(2000, std::string(600, 'x')));
  read(2);
  EXPECT_EQ(client.State(id)["t_ms"], 2000);
  EXPECT_EQ(socket.Next("frames")["frames"]["dropped"], 0);
  // What is wrong with one is told, and the next is seen.
  ASSERT_TRUE(socket.Show(3000, std::string(599, 'x')));
  EXPECT_NE(socket.Next("error")["error"]["message"].get<std::string>().find("20 x 10 has 608 bytes"),
            std::string::npos);
  ASSERT_TRUE(socket.Show(1, std::string(600, 'x')));
  EXPECT_EQ(socket.Next("error")["t_ms"], 1) << "time does not go back";
  ASSERT_TRUE(socket.Say({{"type", "format"}, {"format", "file"}}));
  ASSERT_TRUE(socket.Show(4000, "no picture"));
  EXPECT_EQ(socket.Next("error")["t_ms"], 4000);
  ASSERT_TRUE(socket.Show(5000, PpmBytes(60, 40, 7)));
  read(3);
  for (const Json& bad : std::vector<Json>{{{"type", "format"}, {"format", "rgb"}},
                                           {{"type", "format"}, {"format", "rgb"}, {"width", 1 << 20}, {"height", 9}},
                                           {{"type", "format"}, {"format", "h264"}},
                                           {{"type", "format"}, {"width", 9}, {"height", 9}}}) {
    ASSERT_TRUE(socket.Say(bad));
    EXPECT_EQ(socket.Next("error")["status"], 400) << bad;
  }
  // A question while frames come.
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(socket.Show(6000 + i, picture));
  Json question = Question("what is there?");
  question["type"] = "ask";
  ASSERT_TRUE(socket.Say(question));
  EXPECT_FALSE(socket.Next("answer").is_null());
  WaitFor(server, id, [](const Json& frames) {
    return frames["waiting"] == 0 && frames["arrived"] == frames["read"].get<int>() + frames["dropped"].get<int>();
  });
}

TEST_F(SocketTest, WhoMayNot) {
  const TempDir folder;
  const std::string keys = folder.Write("keys", "secret-key-1\n");
  const ServerProcess server({"--api-key-file", keys});
  const HttpAnswer made = server.Post(kSessions, Json::object(), "secret-key-1");
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string path = SocketOf(made.json()["id"]), key = "Authorization: Bearer secret-key-1\r\n";
  EXPECT_EQ(SocketClient(server, path).status(), 401);
  EXPECT_EQ(SocketClient(server, path, "Authorization: Bearer guess\r\n").status(), 401);
  EXPECT_EQ(SocketClient(server, SocketOf("none"), key).status(), 404);
  EXPECT_EQ(SocketClient(server, path + "?last_event_id=x", key).status(), 400);
  EXPECT_EQ(SocketClient(server, path, key).status(), 101);
  const std::string plain = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + key;
  const std::string upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
  const std::string nonce = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  for (const std::string& head :
       {plain + "\r\n", plain + upgrade + nonce + "\r\n", plain + upgrade + "Sec-WebSocket-Version: 13\r\n\r\n",
        plain + upgrade + nonce + "Sec-WebSocket-Version: 8\r\n\r\n",
        plain + "Connection: Upgrade\r\nUpgrade: h2c\r\n" + nonce + "Sec-WebSocket-Version: 13\r\n\r\n"}) {
    const SocketClient refused(server, head, 0);
    EXPECT_EQ(refused.status(), 426) << head;
    EXPECT_NE(refused.head().find("Sec-WebSocket-Version: 13"), std::string::npos);
  }
  EXPECT_EQ(server.Get("/health").status, 200);
  const ServerProcess open;
  const std::string of_open = SocketOf(Client(open).Create());
  EXPECT_EQ(SocketClient(open, of_open, "Origin: http://elsewhere.example\r\n").status(), 403);
  EXPECT_EQ(SocketClient(open, of_open).status(), 101);
}

TEST_F(SocketTest, SomeConnectionsAreLeftToOthers) {
  const ServerProcess server({"--connections", "8"});
  Client client(server);
  const std::string id = client.Create();
  const SocketClient one(server, SocketOf(id)), two(server, SocketOf(id));
  EXPECT_TRUE(one.open() && two.open());
  EXPECT_EQ(SocketClient(server, SocketOf(id)).status(), 429);
  EXPECT_EQ(client.State(id)["id"], id);
}

TEST_F(SocketTest, RequestsThatAreWrongDisturbNothing) {
  const ServerProcess server;
  Client client(server);
  SocketClient socket(server, SocketOf(client.Create()));
  ASSERT_FALSE(socket.Next("session").is_null());
  const std::vector<std::string> bad = {"",
                                        "no json",
                                        "[1]",
                                        "{}",
                                        R"({"type":"dance"})",
                                        R"({"type":3})",
                                        R"({"type":"append"})",
                                        R"({"type":"append","text":3})",
                                        R"({"type":"append","text":"x","more":1})",
                                        R"({"type":"ask"})",
                                        R"({"type":"ask","question":"x","logprobs":true})",
                                        R"({"type":"rule","when":"a => b"})",
                                        R"({"type":"rule"})",
                                        R"({"type":"forget"})",
                                        R"({"type":"append","text":"x","id":{"a":1}})",
                                        R"({"type":"append","text":"x","id":")" + std::string(500, 'i') + "\"}"};
  for (const std::string& text : bad) {
    ASSERT_TRUE(socket.Write(SocketClient::FrameOf(SocketClient::kLast | SocketClient::kText, text)));
    const Json error = socket.Next("error");
    ASSERT_FALSE(error.is_null()) << text;
    EXPECT_GE(error["status"], 400) << text;
    EXPECT_FALSE(error["error"]["message"].get<std::string>().empty());
  }
  ASSERT_TRUE(socket.Show(1, "x"));
  EXPECT_FALSE(socket.Next("error").is_null()) << "no encoder, no frames";
  ASSERT_TRUE(socket.Say({{"type", "append"}, {"text", "the sea"}}));
  EXPECT_FALSE(socket.Next("appended").is_null());
}

TEST_F(SocketTest, WrongFramesEndTheConnectionAndNothingElse) {
  const ServerProcess server({"--max-body", "1MiB"});
  Client client(server);
  const std::string id = client.Create();
  SocketClient other(server, SocketOf(id));
  ASSERT_FALSE(other.Next("session").is_null());
  using Socket = SocketClient;
  const std::string masked = std::string("\x80\x11\x22\x33\x44", 5);
  struct Case {
    const char* what;
    std::string bytes;
    int code;  // 0: any
  };
  const std::vector<Case> cases = {
      {"no mask", std::string("\x81\x02{}", 4), 1002},
      {"a kind that is reserved", Socket::FrameOf(0x83, "x"), 1002},
      {"a control kind that is reserved", Socket::FrameOf(0x8B, "x"), 1002},
      {"reserved bits", Socket::FrameOf(0xF1, "x"), 1002},
      {"a long ping", Socket::FrameOf(Socket::kLast | Socket::kPing, std::string(200, 'x')), 1002},
      {"a ping in parts", Socket::FrameOf(Socket::kPing, "x"), 1002},
      {"a part without a beginning", Socket::FrameOf(Socket::kLast | Socket::kMore, "x"), 1002},
      {"a message in a message",
       Socket::FrameOf(Socket::kText, "{") + Socket::FrameOf(Socket::kLast | Socket::kText, "}"), 1002},
      {"a length above all", std::string("\x82\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x11\x22\x33\x44", 14), 0},
      {"a length above the largest message", std::string("\x82\xFF\0\0\0\0\x10\0\0\0\x11\x22\x33\x44", 14), 1009},
      {"a length in too many bytes", std::string("\x81\xFF\0\0\0\0\0\0\0\x01\x11\x22\x33\x44x", 15), 1002},
      {"a text that is no UTF-8", Socket::FrameOf(Socket::kLast | Socket::kText, "\"\xC3\x28\""), 1007},
      {"an end of one byte", Socket::FrameOf(Socket::kLast | Socket::kClose, "x"), 1002},
      {"an end with a code that is none", Socket::FrameOf(Socket::kLast | Socket::kClose, std::string("\x03\xEC", 2)),
       0},
      {"no frames at all", std::string(4000, '\x7F'), 0},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.what);
    Socket socket(server, SocketOf(id));
    ASSERT_TRUE(socket.open());
    ASSERT_TRUE(socket.Write(bad.bytes));
    const int code = socket.CloseCode();
    if (bad.code != 0) EXPECT_EQ(code, bad.code);
  }
  // Larger than may be, in parts that may.
  Socket large(server, SocketOf(id));
  const std::string part(400 << 10, ' ');
  (void)large.Write(Socket::FrameOf(Socket::kText, part));
  for (int i = 0; i < 3; ++i) (void)large.Write(Socket::FrameOf(Socket::kMore, part));
  EXPECT_EQ(large.CloseCode(), 1009);
  // Bytes behind the request, and an end in the middle of a frame.
  for (int i = 0; i < 20; ++i) {
    Socket half(server, SocketOf(id));
    // The server may not have seen yet that others before it went.
    EXPECT_TRUE(half.open() || half.status() == 429) << half.head();
    (void)half.Write(Socket::FrameOf(Socket::kLast | Socket::kText, "{\"type\":\"append\"").substr(0, 3 + i % 9));
  }
  // A message in many parts, with pings between them, is one; and the first one was not disturbed.
  ASSERT_TRUE(other.Write(Socket::FrameOf(Socket::kText, R"({"type":"append",)") +
                          Socket::FrameOf(Socket::kLast | Socket::kPing, "are you there") +
                          Socket::FrameOf(Socket::kMore, R"("id":"parts")") +
                          Socket::FrameOf(Socket::kLast | Socket::kMore, R"(,"text":"sea"})")));
  Socket::Frame pong = other.Read();
  EXPECT_EQ(pong.kind, Socket::kPong);
  EXPECT_EQ(pong.payload, "are you there");
  EXPECT_EQ(other.Next("appended")["id"], "parts");
  EXPECT_EQ(server.Get("/health").status, 200);
}

// One that takes nothing: the session goes on, and what it would have been sent is not kept.
TEST_F(SocketTest, AClientThatTakesNothingHoldsUpNobody) {
  const ServerProcess server({"--pot", "96"});
  Client client(server);
  const std::string id = client.Create({{"rule_tokens", 96}});
  SocketClient deaf(server, SocketOf(id));
  ASSERT_TRUE(deaf.open());
  ASSERT_TRUE(deaf.Say(EagerRule("door")));
  for (int i = 0; i < 12; ++i) client.Append(id, i % 3 == 0 ? "the man came " : "the sea and the sea ");
  const int64_t before = server.ResidentBytes();
  const std::string wrong =
      SocketClient::FrameOf(SocketClient::kLast | SocketClient::kText, R"({"type":")" + std::string(900, 'x') + "\"}");
  // As much as it may write until the server gives it up.
  for (int i = 0; i < 40000 && deaf.Write(wrong); ++i) {
    if (i % 4000 == 0) client.Append(id, "the man came ");
  }
  if (kOwnMemory) EXPECT_LT(server.ResidentBytes() - before, 8 << 20);
  EXPECT_EQ(client.Ask(id, "what of the sea?").empty(), false);
}

TEST_F(SocketTest, TheServersEndIsTold) {
  ServerProcess server;
  Client client(server);
  SocketClient socket(server, SocketOf(client.Create()));
  ASSERT_FALSE(socket.Next("session").is_null());
  int code = 0;
  std::thread reader([&] { code = socket.CloseCode(); });
  EXPECT_EQ(server.Terminate(), 0);
  reader.join();
  EXPECT_EQ(code, 1001);
}

}  // namespace
}  // namespace weir::testing
