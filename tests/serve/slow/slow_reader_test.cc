// SPDX-License-Identifier: Apache-2.0
// A client that takes an endless answer drop by drop: what it does not take is not stored for ever.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "serve/server_process.h"

namespace weir::testing {
namespace {

TEST(SlowReader, IsGivenUpAndItsPotIsFree) {
  const ServerProcess server({"--pot", "64", "--answer-pots", "1"});
  const std::string request =
      "{\"prompt\":\"the man\",\"max_tokens\":100000000,\"ignore_eos\":true,\"stream\":true,\"logprobs\":5}";
  const std::string bytes =
      "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(request.size()) +
      "\r\n\r\n" + request;
  const int fd = server.Connect();
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  const int64_t before = server.ResidentBytes();
  // Enough that no single write waits too long; far less than is written, likelihoods and all.
  bool idle = false;
  std::string drop(1 << 16, '\0');
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(20);
  while (!idle && std::chrono::steady_clock::now() < end) {
    ASSERT_GT(recv(fd, drop.data(), drop.size(), 0), 0);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    idle = server.Get("/metrics").body.find("\nweir_answer_pots_busy 0\n") != std::string::npos;
  }
  EXPECT_TRUE(idle);
  EXPECT_LT(server.ResidentBytes() - before, 64 << 20);
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 4}}).status, 200);
  close(fd);
}

}  // namespace
}  // namespace weir::testing
