// SPDX-License-Identifier: Apache-2.0
#include "serve/waiting_room.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kHead = "GET /x HTTP/1.1\r\n\r\n";

// A room whose threads answer with what they got, and hold it while `held` says so.
class WaitingRoomTest : public ::testing::Test {
 protected:
  ~WaitingRoomTest() override {
    release_.set_value();
    if (room_ != nullptr) room_->Stop();  // its threads use room_
    for (const int fd : clients_) close(fd);
  }
  void Open(const WaitingRoom::Limits& limits) {
    room_ = std::make_unique<WaitingRoom>(
        limits, WaitingRoom::Calls{[this](const WaitingRoom::Arrival& arrival) {
                                     if (arrival.early.find("hold") != std::string::npos) released_.wait();
                                     const std::string text = "got " + arrival.early;
                                     (void)!send(arrival.socket, text.data(), text.size(), MSG_NOSIGNAL);
                                     room_->Close(arrival.socket);
                                   },
                                   [](int socket) { (void)!send(socket, "busy", 4, MSG_NOSIGNAL); },
                                   [](std::string_view method, std::string_view path) {
                                     return method == "GET" && path == "/health";
                                   }});
  }
  // A client of the room that has said `text`.
  int Client(const std::string& text) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    Say(ends[0], text);
    room_->Add(ends[1]);
    clients_.push_back(ends[0]);
    return ends[0];
  }
  static void Say(int fd, const std::string& text) {
    EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // What comes until the room closes, or within `wait`.
  static std::string Hear(int fd, milliseconds wait = seconds(30)) {
    std::string out;
    const auto end = Clock::now() + wait;
    for (;;) {
      pollfd ready{fd, POLLIN, 0};
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now()).count();
      if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return out + " and silence";
      char buffer[4096];
      const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
      if (n <= 0) return out;
      out.append(buffer, static_cast<size_t>(n));
    }
  }

  std::promise<void> release_;
  std::shared_future<void> released_{release_.get_future()};
  std::vector<int> clients_;
  std::unique_ptr<WaitingRoom> room_;
};

TEST_F(WaitingRoomTest, AHeadInPiecesIsPassedOnWhole) {
  Open({2, 8, 8, 1000, seconds(60)});
  const int fd = Client("GET /x HT");
  EXPECT_EQ(Hear(fd, milliseconds(300)), " and silence");
  for (const char c : std::string("TP/1.1\r\nA: b\r\n\r\n")) Say(fd, std::string(1, c));
  EXPECT_EQ(Hear(fd), "got GET /x HTTP/1.1\r\nA: b\r\n\r\n");
  EXPECT_EQ(Hear(Client(std::string(kHead) + "body")), std::string("got ") + kHead + "body");
}

TEST_F(WaitingRoomTest, SilentOnesTakeNoThread) {
  Open({1, 8, 500, 1000, seconds(60)});
  for (int i = 0; i < 400; ++i) Client(i % 2 == 0 ? "" : "GET /x");
  EXPECT_EQ(Hear(Client(kHead)), std::string("got ") + kHead);
}

TEST_F(WaitingRoomTest, TimeCountsFromTheBeginning) {
  Open({1, 8, 8, 1000, seconds(1)});
  const auto start = Clock::now();
  const int silent = Client(""), half = Client("GET /x");
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(milliseconds(150));
    Say(half, "y");  // does not make it longer
  }
  EXPECT_EQ(Hear(silent), "");
  EXPECT_EQ(Hear(half), "");
  EXPECT_GE(Clock::now() - start, milliseconds(950));
  EXPECT_LT(Clock::now() - start, seconds(20));
}

TEST_F(WaitingRoomTest, TheOldestMakesRoom) {
  Open({1, 8, 3, 1000, seconds(60)});
  const int first = Client(""), second = Client("");
  Client("");
  Client("");
  EXPECT_EQ(Hear(first), "");
  EXPECT_EQ(Hear(second, milliseconds(300)), " and silence");
  EXPECT_EQ(Hear(Client(kHead)), std::string("got ") + kHead);
}

TEST_F(WaitingRoomTest, BusyThreadsRefuseTheNewestAndAnswerUrgentOnes) {
  Open({1, 2, 8, 1000, seconds(60)});
  const std::string hold = "GET /hold HTTP/1.1\r\n\r\n", health = "GET /health HTTP/1.1\r\n\r\n";
  const int held = Client(hold);
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_FALSE(room_->crowded());
  const int second = Client(hold);
  std::this_thread::sleep_for(milliseconds(100));
  const int third = Client(hold);
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_TRUE(room_->crowded());
  EXPECT_EQ(Hear(Client(hold)), "busy");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Hear(Client(health)), "got " + health);
  EXPECT_EQ(Hear(held, milliseconds(100)), " and silence");
  release_.set_value();
  for (const int fd : {held, second, third}) EXPECT_EQ(Hear(fd), "got " + hold);
  release_ = std::promise<void>();
}

TEST_F(WaitingRoomTest, LongAndBrokenHeadsArePassedOnAsTheyAre) {
  Open({1, 8, 8, 1000, seconds(60)});
  EXPECT_EQ(Hear(Client(std::string(1000, 'a'))), "got " + std::string(1000, 'a'));
  const int fd = Client("GET");
  shutdown(fd, SHUT_WR);
  EXPECT_EQ(Hear(fd), "got GET");
  const int nothing = Client("");
  shutdown(nothing, SHUT_WR);
  EXPECT_EQ(Hear(nothing), "");
}

// An answer reaches a client that is still sending.
TEST_F(WaitingRoomTest, WhatComesAfterAnAnswerIsDropped) {
  Open({1, 8, 8, 1000, seconds(60)});
  const int fd = Client(std::string(kHead));
  for (int i = 0; i < 20; ++i) {
    (void)!send(fd, "more", 4, MSG_NOSIGNAL);
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(Hear(fd, seconds(10)).substr(0, 10), "got GET /x");
}

TEST_F(WaitingRoomTest, TheEndAnswersWhatWaitsAndClosesTheRest) {
  Open({1, 8, 8, 1000, seconds(60)});
  const int silent = Client("GET"), asks = Client(kHead);
  std::this_thread::sleep_for(milliseconds(300));
  room_->Stop();
  EXPECT_EQ(Hear(silent), "");
  EXPECT_EQ(Hear(asks), std::string("got ") + kHead);
}

}  // namespace
}  // namespace weir
