// SPDX-License-Identifier: Apache-2.0
// `weir watch` and a real RTSP server: it is read, it goes away and comes back, and it wants a password.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "cli/edited_model.h"
#include "cli/process.h"
#include "support/build_paths.h"
#include "support/pictures.h"

extern char** environ;

namespace weir::testing {
namespace {

using json = nlohmann::ordered_json;

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &n), 0);
  close(fd);
  return ntohs(address.sin_port);
}

class RtspServer {
 public:
  explicit RtspServer(int port, const std::string& password = "") : port_(port) {
    std::vector<std::string> words = {"/usr/bin/python3", SourceDir() + "/tests/cli/slow/rtsp_server.py",
                                      std::to_string(port)};
    if (!password.empty()) words.push_back(password);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&child_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  }
  ~RtspServer() { Kill(); }
  RtspServer(const RtspServer&) = delete;
  RtspServer& operator=(const RtspServer&) = delete;

  // False where it is not installed.
  bool Up() {
    for (int i = 0; i < 600; ++i) {
      int status = 0;
      if (waitpid(child_, &status, WNOHANG) == child_) {
        child_ = -1;
        EXPECT_EQ(WEXITSTATUS(status), 77) << "it ended";
        return false;
      }
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<uint16_t>(port_));
      const bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
      close(fd);
      if (connected) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }
  void Kill() {
    if (child_ < 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  const int port_;
  pid_t child_ = -1;
};

RunResult Watch(const std::string& address, int interrupt_after_ms = 0) {
  RunOptions options;
  if (interrupt_after_ms > 0) options.interrupt_after_ms = interrupt_after_ms;
  options.silent_end = interrupt_after_ms > 0;
  return RunWeir({"watch", address, "-m", VisionPath("llava.gguf"), "--mmproj", VisionPath("clip.gguf"), "--fps", "5",
                  "--pot", "128", "--policy", "streaming_llm", "--when", "what is it => the man", "-o", "json"},
                 options);
}

TEST(RtspTest, AStreamIsReadAndOpenedAgain) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  const int port = FreePort();
  RtspServer first(port, "secret");
  if (!first.Up()) GTEST_SKIP() << "gir1.2-gst-rtsp-server-1.0 and its plugins are not installed";
  std::thread away([&] {
    std::this_thread::sleep_for(std::chrono::seconds(15));
    first.Kill();
    std::this_thread::sleep_for(std::chrono::seconds(3));
    RtspServer second(port, "secret");
    (void)second.Up();
    std::this_thread::sleep_for(std::chrono::seconds(30));
  });
  const RunResult run = Watch("rtsp://me:secret@127.0.0.1:" + std::to_string(port) + "/camera", 45000);
  away.join();
  EXPECT_EQ(run.code, 130) << run.err;
  json report, gap;
  for (const std::string& line : Lines(run.out)) {
    const json row = json::parse(line, nullptr, false);
    ASSERT_TRUE(row.is_object()) << line;
    if (row["type"] == "report") report = row;
    if (row["type"] == "gap") gap = row;
  }
  ASSERT_TRUE(gap.is_object()) << run.out << run.err;
  EXPECT_GE(gap["gap_ms"], 2500);
  EXPECT_EQ(report["gaps"], 1);
  EXPECT_GT(report["frames_arrived"], 60) << "before the gap and after it";
  EXPECT_GT(report["t_ms"], gap["t_ms"]);
  EXPECT_NE(run.err.find("trying again"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("secret"), std::string::npos) << run.err;
}

TEST(RtspTest, WhatIsWrongIsSaidInPlainWords) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  const int port = FreePort();
  RtspServer server(port, "secret");
  if (!server.Up()) GTEST_SKIP() << "gir1.2-gst-rtsp-server-1.0 and its plugins are not installed";
  const std::string host = "127.0.0.1:" + std::to_string(port);
  for (const auto& [address, words] : std::vector<std::pair<std::string, std::string>>{
           {"rtsp://me:guess-1@" + host + "/camera", "wants a user and a password, or others"},
           {"rtsp://" + host + "/camera", "wants a user and a password, or others"},
           {"rtsp://me:secret@" + host + "/nothing", "has nothing under this name"}}) {
    const RunResult run = Watch(address);
    EXPECT_NE(run.code, 0);
    const std::vector<std::string> lines = Lines(run.err);
    ASSERT_FALSE(lines.empty());
    EXPECT_NE(lines.back().find(words), std::string::npos) << run.err;
    for (const char* hidden : {"guess-1", "secret", "DESCRIBE", "ffmpeg", "0x"}) {
      EXPECT_EQ(lines.back().find(hidden), std::string::npos) << run.err;
    }
  }
}

}  // namespace
}  // namespace weir::testing
