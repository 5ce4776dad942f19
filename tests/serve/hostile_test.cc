// SPDX-License-Identifier: Apache-2.0
// Clients that mean harm, or die in the middle: right answers, flat memory, other clients unaffected.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "serve/server_process.h"
#include "support/sanitizers.h"

namespace weir::testing {
namespace {

class HostileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new ServerProcess(
        {"--pot", "96", "--max-body", "256KiB", "--timeout", "2", "--connections", "16", "--queue", "8"});
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  void TearDown() override { ExpectAlive(); }
  static void ExpectAlive() {
    ASSERT_TRUE(server_->Running());
    EXPECT_EQ(server_->Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 2}}).status, 200);
  }
  // Comes to hold within a minute, however long each look takes.
  static void ExpectMetric(const std::string& line) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    std::string metrics;
    while (std::chrono::steady_clock::now() < end) {
      metrics = server_->Get("/metrics").body;
      if (metrics.find("\n" + line + "\n") != std::string::npos) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "no " << line << " in " << metrics;
  }
  static void ExpectHealthSoon() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (server_->Get("/health").status != 200) {  // 503 while others are in front
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  static void ExpectIdleSoon() {
    ExpectMetric("weir_jobs_waiting 0");
    ExpectMetric("weir_answer_pots_busy 0");
  }
  static int StatusOf(const std::string& response) {
    return response.size() > 12 ? std::atoi(response.c_str() + 9) : 0;
  }
  static std::string Head(const std::string& line, const std::string& more = "") {
    return line + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + more + "\r\n";
  }
  static ServerProcess* server_;
};
ServerProcess* HostileTest::server_ = nullptr;

TEST_F(HostileTest, BodiesThatAreNoRequest) {
  const std::string deep(100000, '['), deep_objects = [] {
    std::string out;
    for (int i = 0; i < 20000; ++i) out += "{\"a\":";
    return out;
  }();
  std::string many = "{\"prompt\":[0";
  for (int i = 0; i < 60000; ++i) many += ",0";
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"), std::string("\"a\""),
        std::string("{\"prompt\":\"a\"} x"), std::string("{\"prompt\":\"\xff\xfe\"}"),
        std::string("{\"prompt\":\"a\",}"), std::string("{'prompt':'a'}"), std::string("{\"prompt\":NaN}"),
        std::string("\0\0\0", 3), deep, deep_objects, many + "]x", std::string("{\"a\":1e999}"),
        std::string("{\"prompt\":{\"prompt\":{}}}"), std::string("{\"prompt\":\"\\ud800\"}")}) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/v1/sessions/restore"}) {
      const HttpAnswer answer = server_->PostText(path, body);
      EXPECT_EQ(answer.status, 400) << path << ": " << body.substr(0, 60);
      EXPECT_TRUE(answer.json()["error"]["message"].is_string()) << answer.body;
    }
  }
}

// Keys of an object are looked up one after another: many of them would cost the square of their number.
TEST_F(HostileTest, ObjectsOfManyKeysAreRefusedBeforeTheyAreBuilt) {
  std::string many = "{\"prompt\":\"a\"";
  for (int i = 0; i < 20000; ++i) many += ",\"" + std::to_string(i) + "\":0";
  many += "}";
  ASSERT_LT(many.size(), 256u << 10);
  for (const std::string& body : {many, "{\"messages\":[" + many + "]}"}) {
    const HttpAnswer answer = server_->PostText("/v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400);
    EXPECT_NE(answer.body.find("an object"), std::string::npos) << answer.body;
  }
}

TEST_F(HostileTest, BodiesThatAreTooLarge) {
  EXPECT_EQ(server_->PostText("/tokenize", "{\"content\":\"" + std::string(300000, 'a') + "\"}").status, 413);
  EXPECT_EQ(StatusOf(server_->Raw(Head("POST /tokenize", "Content-Length: 1073741824\r\n"))), 413);
  EXPECT_EQ(StatusOf(server_->Raw(Head("POST /tokenize", "Content-Length: 99999999999999999999999\r\n"))), 413);
  EXPECT_EQ(StatusOf(server_->Raw(Head("POST /nothing", "Content-Length: 1073741824\r\n"))), 413);
  // In chunks, without a length, for as long as the server takes them.
  const int64_t before = server_->ResidentBytes();
  std::string chunks = Head("POST /tokenize", "Transfer-Encoding: chunked\r\n");
  for (int i = 0; i < 1000; ++i) chunks += "10000\r\n" + std::string(65536, 'a') + "\r\n";
  const std::string answer = server_->Raw(chunks);
  EXPECT_TRUE(answer.empty() || StatusOf(answer) == 413) << answer;  // empty: the answer was lost under what still came
  EXPECT_LT(server_->ResidentBytes() - before, 32 << 20);
}

// Bodies count towards the common limit from their announcement to the end of their answers; ordinary requests still
// work.
TEST(HostileBodies, LargeOnesAreRefusedWhileOthersFillTheirPlace) {
  const ServerProcess server({"--pot", "64", "--max-body", "1MiB", "--max-bodies", "1MiB"});
  const auto post = [](const std::string& path, const std::string& more) {
    return "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + more + "\r\n";
  };
  const std::string half = "{\"content\":\"" + std::string(512 << 10, 'a') + "\"}";
  std::string endless = "{\"prompt\":\"the man\",\"max_tokens\":100000000,\"ignore_eos\":true,\"stream\":true}";
  endless.resize((1 << 20) - 100, ' ');
  for (const std::string& holding :
       {post("/tokenize", "Content-Length: 1048576\r\n"),  // never comes
        post("/v1/completions", "Content-Length: " + std::to_string(endless.size()) + "\r\n") + endless}) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    const auto ask_until = [&](int status) {
      HttpAnswer answer;
      do {
        answer = server.PostText("/tokenize", half);
      } while (answer.status != status && std::chrono::steady_clock::now() < end);
      EXPECT_EQ(answer.status, status) << answer.body;
      return answer;
    };
    ask_until(200);
    // Room is given back after the answer was sent, before the connection ends.
    (void)server.Raw(post("/tokenize", "Content-Length: " + std::to_string(half.size()) + "\r\n") + half);
    // The one before may still have its room for a moment: then this one is refused.
    int fd = -1;
    for (std::string begin(12, ' '); fd < 0;) {
      fd = server.Connect();
      ASSERT_EQ(send(fd, holding.data(), holding.size(), MSG_NOSIGNAL), static_cast<ssize_t>(holding.size()));
      pollfd wait{fd, POLLIN, 0};
      if (poll(&wait, 1, 500) <= 0) break;
      if (recv(fd, begin.data(), begin.size(), MSG_WAITALL) < 12 || begin != "HTTP/1.1 429") break;
      close(std::exchange(fd, -1));
      ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
    EXPECT_EQ(ask_until(429).json()["error"]["code"], "over_budget");
    const std::string announced = server.Raw(post("/tokenize", "Content-Length: 524288\r\n"));
    EXPECT_EQ(announced.rfind("HTTP/1.1 429", 0), 0u) << announced;
    EXPECT_NE(announced.find("\r\nRetry-After: 1\r\n"), std::string::npos) << announced;
    const std::string in_chunks = server.Raw(post("/tokenize", "Transfer-Encoding: chunked\r\n") + "40000\r\n" +
                                             std::string(256 << 10, 'a') + "\r\n");
    EXPECT_EQ(in_chunks.rfind("HTTP/1.1 429", 0), 0u) << in_chunks;
    EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 2}}).status, 200);
    close(fd);
    ask_until(200);
  }
}

// A text's ids are written without a JSON value for each.
TEST(HostileBodies, TokenizingTakesLittleMoreThanTheTokens) {
  if (!kOwnMemory) GTEST_SKIP() << "a sanitizer keeps what was freed";
  const ServerProcess server({"--pot", "64"});
  ASSERT_EQ(server.Post("/tokenize", {{"content", "the man"}}).status, 200);
  const int64_t before = server.PeakResidentBytes(), n_bytes = 4 << 20;
  std::string text;
  for (uint32_t x = 1; std::ssize(text) < n_bytes; x = x * 1664525 + 1013904223) {
    text += static_cast<char>('!' + x % 977 % 94);  // few words: about a token for each byte
  }
  const Json tokens = server.Post("/tokenize", {{"content", text}}).json()["tokens"];
  const int64_t n_tokens = std::ssize(tokens);
  ASSERT_GT(n_tokens, n_bytes / 2);
  EXPECT_LT(server.PeakResidentBytes() - before, 3 * n_bytes + 16 * n_tokens + (8 << 20)) << n_tokens;
}

// A body of 1 GiB that really comes: it is refused, and what still comes is thrown away, for a while.
TEST_F(HostileTest, AGibibyteIsRefused) {
  const int64_t before = server_->ResidentBytes();
  const std::string part(1 << 20, 'a');
  for (const char* length : {"Content-Length: 1073741824\r\n", "Transfer-Encoding: chunked\r\n"}) {
    const bool chunked = length[0] == 'T';
    const int fd = server_->Connect();
    ASSERT_GE(fd, 0);
    const std::string head = Head("POST /tokenize", length), frame = chunked ? "100000\r\n" : "";
    ASSERT_EQ(send(fd, head.data(), head.size(), MSG_NOSIGNAL), static_cast<ssize_t>(head.size()));
    int64_t n_sent = 0;
    bool taken = true;
    while (taken && n_sent < int64_t{1} << 30) {
      for (const std::string& bytes : {frame, part, std::string(chunked ? "\r\n" : "")}) {
        for (size_t at = 0; taken && at < bytes.size();) {
          const ssize_t n = send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
          taken = n > 0;
          if (taken) at += static_cast<size_t>(n);
        }
      }
      n_sent += static_cast<int64_t>(part.size());
    }
    std::string answer(4096, '\0');
    const ssize_t n = recv(fd, answer.data(), answer.size(), 0);  // -1: it was lost under what still came
    EXPECT_TRUE(n <= 0 || StatusOf(answer) == 413) << answer;
    close(fd);
    ExpectAlive();
  }
  EXPECT_LT(server_->ResidentBytes() - before, 32 << 20);
}

// Clients that end their side, or stop in the middle, without closing.
TEST_F(HostileTest, HalfOpenConnections) {
  const int64_t before = server_->ResidentBytes();
  const std::string request = "{\"prompt\":\"the man\",\"max_tokens\":100000000,\"ignore_eos\":true}";
  const std::string whole =
      Head("POST /v1/completions", "Content-Length: " + std::to_string(request.size()) + "\r\n") + request;
  std::vector<int> open;
  for (const size_t n : {size_t{0}, size_t{10}, whole.size() - request.size(), whole.size() - 5, whole.size()}) {
    for (const bool ended : {false, true}) {
      if (n == whole.size() && !ended) continue;  // that is a client that waits
      open.push_back(server_->Connect());
      ASSERT_GE(open.back(), 0);
      EXPECT_EQ(send(open.back(), whole.data(), n, MSG_NOSIGNAL), static_cast<ssize_t>(n));
      if (ended) shutdown(open.back(), SHUT_WR);
    }
  }
  ExpectAlive();
  ExpectIdleSoon();  // who ended his side has no answer to wait for
  // Each is closed by the server, at the latest when the time for a request to arrive is over.
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (const int fd : open) {
    char buffer[4096];
    for (ssize_t n = 1; n > 0;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
      pollfd wait{fd, POLLIN, 0};
      if (poll(&wait, 1, static_cast<int>(std::max<int64_t>(left, 0))) <= 0) {
        ADD_FAILURE() << "a connection is still open after a minute";
        break;
      }
      n = recv(fd, buffer, sizeof(buffer), 0);
    }
    close(fd);
  }
  if (kOwnMemory) EXPECT_LT(server_->ResidentBytes() - before, 16 << 20);
}

TEST_F(HostileTest, HeadsThatAreNone) {
  for (const std::string& bytes :
       {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01", 8) + "\r\n\r\n", Head("BREW /coffee"),
        Head("GET /" + std::string(9000, 'a')), Head("GET /" + std::string(300, 'a')),
        Head("GET /v1/models/%00%ff%2e%2e%2f"), Head("GET /v1/sessions/../../etc/passwd"),
        Head("POST /tokenize", "Content-Encoding: gzip\r\nContent-Length: 4\r\n") + "abcd",
        Head("POST /tokenize", "Content-Length: -1\r\n"), Head("POST /tokenize", "Content-Length: x\r\n"),
        Head("POST /tokenize"),
        std::string("POST /tokenize HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: "
                    "5\r\n\r\n--x--")}) {
    const int status = StatusOf(server_->Raw(bytes));
    EXPECT_TRUE(status == 0 || (status >= 400 && status < 500)) << status << " for " << bytes.substr(0, 60);
  }
  // A head without an end is cut off, not stored.
  const int64_t before = server_->ResidentBytes();
  std::string head = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 200000; ++i) head += "A: " + std::string(40, 'b') + "\r\n";
  server_->Raw(head);
  server_->Raw("GET /" + std::string(8 << 20, 'a'));
  if (kOwnMemory) EXPECT_LT(server_->ResidentBytes() - before, 16 << 20);
  // Parts are not served.
  const std::string ranged = server_->Raw(Head("GET /health", "Range: bytes=0-1\r\n"));
  EXPECT_EQ(StatusOf(ranged), 200) << ranged;
  std::string ranges = "Range: bytes=0-1";
  while (ranges.size() < 8000) ranges += ",0-1";
  const int status = StatusOf(server_->Raw(Head("GET /health", ranges + "\r\n")));
  EXPECT_TRUE(status == 200 || (status >= 400 && status < 500)) << status;
  ExpectAlive();
}

// A proxy in front may take the other one of two lengths: what it thinks is a body would be the next client's request.
TEST_F(HostileTest, BodiesWhoseEndIsSaidTwice) {
  const std::string body = "{\"content\":\"a\"}", n = std::to_string(body.size()),
                    length = "Content-Length: " + n + "\r\n", chunked = "Transfer-Encoding: chunked\r\n",
                    in_chunks = "f\r\n" + body + "\r\n0\r\n\r\n";
  ASSERT_EQ(body.size(), 15u);
  EXPECT_EQ(StatusOf(server_->Raw(Head("POST /tokenize", length) + body)), 200);
  EXPECT_EQ(StatusOf(server_->Raw(Head("POST /tokenize", chunked) + in_chunks)), 200);
  for (const std::string& more :
       {length + "Content-Length: 2\r\n", "Content-Length: 2\r\n" + length, length + "content-length: " + n + "\r\n",
        "Content-Length: " + n + ", " + n + "\r\n", "Content-Length: +" + n + "\r\n", "Content-Length: " + n + "x\r\n",
        "Content-Length : " + n + "\r\n", length + chunked, chunked + length, chunked + chunked,
        std::string("Transfer-Encoding: gzip, chunked\r\n"), std::string("Transfer-Encoding: identity\r\n"),
        length + "Transfer-Encoding: x\r\n"}) {
    EXPECT_EQ(StatusOf(server_->Raw(Head("POST /tokenize", more) + body)), 400) << more;
    EXPECT_EQ(StatusOf(server_->Raw(Head("GET /health", more))), 400) << more;
  }
}

TEST_F(HostileTest, PagesOfOtherSites) {
  EXPECT_EQ(StatusOf(server_->Raw(Head("GET /props", "Origin: http://evil.example\r\n"))), 403);
  EXPECT_EQ(StatusOf(server_->Raw(Head("GET /props", "Origin: null\r\n"))), 403);
  EXPECT_EQ(StatusOf(server_->Raw(Head("GET /props", "Origin: http://127.0.0.1\r\n"))), 200);
}

// DNS rebinding: a foreign name may resolve to this machine, so that the page's origin and the Host agree.
TEST_F(HostileTest, NamesThatAreNotThisMachines) {
  EXPECT_EQ(StatusOf(server_->Raw("GET /v1/sessions HTTP/1.1\r\nHost: evil.example:8080\r\n\r\n")), 403);
  EXPECT_EQ(StatusOf(server_->Raw("GET /v1/sessions HTTP/1.1\r\nHost: evil.example:8080\r\n"
                                  "Origin: http://evil.example:8080\r\n\r\n")),
            403);
  EXPECT_EQ(StatusOf(server_->Raw("GET /v1/sessions HTTP/1.1\r\nHost: localhost:1\r\n\r\n")), 200);
}

TEST(HostileOrigins, AllowedPagesAreToldSo) {
  const ServerProcess server({"--pot", "64", "--api-key", "secret", "--allow-origin", "https://app.example"});
  const std::string line = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://app.example\r\n",
                    allows = "Access-Control-Allow-Origin: https://app.example\r\n";
  const std::string asked = server.Raw(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://app.example\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, x-extra\r\n\r\n");
  EXPECT_EQ(asked.rfind("HTTP/1.1 204", 0), 0u) << asked;
  EXPECT_NE(asked.find(allows), std::string::npos) << asked;
  EXPECT_NE(asked.find("Access-Control-Allow-Headers: authorization, x-extra\r\n"), std::string::npos) << asked;
  const std::string refused =
      server.Raw(line + "Content-Length: 2\r\n\r\n{}");  // without the key: refused, and the page can read the error
  EXPECT_EQ(refused.rfind("HTTP/1.1 401", 0), 0u) << refused;
  EXPECT_NE(refused.find(allows), std::string::npos) << refused;
  const std::string other = server.Raw(
      "OPTIONS /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(other.rfind("HTTP/1.1 401", 0), 0u) << other;
  EXPECT_EQ(other.find("Access-Control"), std::string::npos) << other;
}

TEST_F(HostileTest, ConnectionsThatSayNothing) {
  std::vector<int> open;
  for (int i = 0; i < 12; ++i) open.push_back(server_->Connect());
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(server_->Get("/health").status, 200);  // four threads are left
  for (int i = 0; i < 12; ++i) open.push_back(server_->Connect());
  EXPECT_EQ(server_->Get("/health").status, 200);  // none is, until the silent ones time out
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  for (const int fd : open) close(fd);
}

// A thread is spent on a request: clients that say nothing, or half a head, take none and are closed in time.
TEST(HostileSilence, HoldsUpNobody) {
  const ServerProcess server({"--pot", "64", "--connections", "4", "--timeout", "8"});
  const auto start = std::chrono::steady_clock::now();
  std::vector<int> open;
  const std::string half = "GET /v1/models HTTP/1.1\r\nHost: 127";
  for (int i = 0; i < 320; ++i) {
    open.push_back(server.Connect());
    ASSERT_GE(open.back(), 0);
    if (i % 2 == 0) ASSERT_GT(send(open.back(), half.data(), half.size(), MSG_NOSIGNAL), 0);
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(server.Get("/health").status, 200);
    EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 2}}).status, 200);
  }
  // From the moment they were accepted, not from when somebody had time for them.
  for (const int fd : open) {
    char byte;
    pollfd wait{fd, POLLIN, 0};
    ASSERT_GT(poll(&wait, 1, 60000), 0);
    EXPECT_LE(recv(fd, &byte, 1, 0), 0);
    close(fd);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// Bodies that do not come hold every thread, for as long as nobody else needs one.
TEST(HostileSilence, InTheMiddleOfABodyYieldsToOthers) {
  const ServerProcess server({"--pot", "64", "--connections", "4", "--timeout", "300"});
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{";
  std::vector<int> open;
  for (int i = 0; i < 4; ++i) {
    open.push_back(server.Connect());
    ASSERT_GT(send(open.back(), head.data(), head.size(), MSG_NOSIGNAL), 0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(server.Get("/health").status, 200);
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 2}}).status, 200);
  for (const int fd : open) close(fd);
}

// More silent connections than may be open: the oldest make room.
TEST(HostileSilence, TheNewestIsHeard) {
  const ServerProcess server({"--pot", "64"});
  std::vector<int> open;
  for (int i = 0; i < 900; ++i) {
    const int fd = server.Connect();
    ASSERT_GE(fd, 0);
    open.push_back(fd);
  }
  EXPECT_EQ(server.Get("/v1/models").status, 200);
  for (const int fd : open) close(fd);
}

// An answer that nobody takes ends when others wait for its pot.
TEST(HostileSilence, WhoReadsNothingHoldsNoPot) {
  const ServerProcess server({"--pot", "64"});
  const std::string request = "{\"prompt\":\"the man\",\"max_tokens\":100000000,\"ignore_eos\":true,\"stream\":true}";
  const std::string bytes =
      "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(request.size()) +
      "\r\n\r\n" + request;
  std::vector<int> open;
  for (int i = 0; i < 2; ++i) {
    open.push_back(server.Connect());
    ASSERT_GT(send(open.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  }
  while (server.Get("/metrics").body.find("\nweir_answer_pots_busy 2\n") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::this_thread::sleep_for(std::chrono::seconds(5));  // until the connections are full
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 2}}).status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  for (const int fd : open) close(fd);
}

// What large bodies needed is given back when they are answered.
TEST(HostileMemory, AnIdleServerKeepsLittleOfWhatRequestsNeeded) {
  if (!kOwnMemory) GTEST_SKIP() << "a sanitizer keeps what was freed";
  const ServerProcess server({"--pot", "64", "--max-bodies", "64MiB"});
  std::string zeros = "{\"content\":\"", ids = "{\"tokens\":[5";
  for (int i = 0; i < 1300000; ++i) zeros += "\\u0000";
  for (int i = 0; i < 1000000; ++i) ids += ",5";
  zeros += "\"}";
  ids += "]}";
  const std::string letters = "{\"content\":\"" + std::string(7 << 20, 'a') + "\"}";
  const int64_t before = server.ResidentBytes();
  std::vector<std::thread> asking;
  for (int k = 0; k < 6; ++k) {
    asking.emplace_back([&, k] {
      for (int i = 0; i < 6; ++i) {
        const int what = (i + k) % 3;
        const HttpAnswer answer = server.PostText(what == 2 ? "/detokenize" : "/tokenize", what == 0   ? zeros
                                                                                           : what == 1 ? letters
                                                                                                       : ids);
        EXPECT_TRUE(answer.status == 200 || answer.status == 429) << answer.body.substr(0, 200);
      }
    });
  }
  for (std::thread& thread : asking) thread.join();
  EXPECT_LT(server.ResidentBytes() - before, 96 << 20);
}

TEST_F(HostileTest, ManyConnectionsOpenedAndDropped) {
  const int64_t before = server_->ResidentBytes();
  int n_connected = 0;
  for (int i = 0; i < 10000; ++i) {
    const int fd = server_->Connect();
    if (fd < 0) continue;
    ++n_connected;
    if (i % 3 == 0) (void)!send(fd, "GET /hea", 8, MSG_NOSIGNAL);  // turned away by now, maybe
    close(fd);
    // Faster than connections are accepted, the system would have clients wait for seconds.
    if (i % 100 == 99) ExpectHealthSoon();
  }
  EXPECT_GT(n_connected, 9900);
  if (kOwnMemory) EXPECT_LT(server_->ResidentBytes() - before, 16 << 20);
}

TEST_F(HostileTest, ClientsThatLeaveFreeTheirWork) {
  const std::string body = "{\"prompt\":\"the man\",\"max_tokens\":100000000,\"ignore_eos\":true,\"stream\":STREAM}";
  for (const char* stream : {"true", "false"}) {
    std::string request = body;
    request.replace(request.find("STREAM"), 6, stream);
    const std::string bytes =
        Head("POST /v1/completions", "Content-Length: " + std::to_string(request.size()) + "\r\n") + request;
    for (int i = 0; i < 4; ++i) server_->Raw(bytes, /*leave=*/true);
  }
  ExpectIdleSoon();
}

TEST_F(HostileTest, MoreWorkThanMayWaitIsRefused) {
  std::vector<int> answering;
  const std::string request = "{\"prompt\":\"the man\",\"max_tokens\":100000000,\"ignore_eos\":true}";
  const std::string bytes =
      Head("POST /v1/completions", "Content-Length: " + std::to_string(request.size()) + "\r\n") + request;
  const auto ask = [&](int n) {
    for (int i = 0; i < n; ++i) {
      answering.push_back(server_->Connect());
      EXPECT_EQ(send(answering.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    }
  };
  ask(2);  // the pots; a job waits until the engine has looked at it
  ExpectMetric("weir_answer_pots_busy 2");
  ask(8);  // the places to wait
  ExpectMetric("weir_jobs_waiting 8");
  const HttpAnswer refused = server_->Post("/v1/completions", {{"prompt", "a"}});
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.json()["error"]["type"], "rate_limit_error") << refused.body;
  for (const int fd : answering) close(fd);
  ExpectIdleSoon();
}

// Who takes nothing of an endless answer does not hold up the server's end.
TEST(HostileEnd, ATerminatedServerDoesNotWaitForAClientThatReadsNothing) {
  ServerProcess server({"--pot", "64"});
  const std::string request = "{\"prompt\":\"the man\",\"max_tokens\":100000000,\"ignore_eos\":true,\"stream\":true}";
  const std::string bytes =
      "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(request.size()) +
      "\r\n\r\n" + request;
  const int fd = server.Connect();
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  // Until the connection holds no more of it.
  const auto unread = [fd] {
    int n = 0;
    return ioctl(fd, FIONREAD, &n) == 0 ? n : -1;
  };
  for (int before = -1; unread() == 0 || unread() != before;) {
    before = unread();
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  EXPECT_EQ(server.Terminate(), 0);
  close(fd);
}

TEST(HostileEnd, ATerminatedServerEndsInTheMiddleOfAnAnswer) {
  ServerProcess server({"--pot", "64"});
  std::thread asking([&] {
    server.Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 100000000}, {"ignore_eos", true}});
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(server.Terminate(), 0);
  asking.join();
}

}  // namespace
}  // namespace weir::testing
