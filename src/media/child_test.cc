// SPDX-License-Identifier: Apache-2.0
#include "media/child.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.h"

#ifdef __GLIBC__
#define WEIR_TEST_CLOSE_FROM __GLIBC_PREREQ(2, 34)
#else
#define WEIR_TEST_CLOSE_FROM 0
#endif

namespace weir {
namespace {

std::unique_ptr<Child> Shell(const std::string& script, const ChildLimits& limits) {
  auto child = Child::Start({"/bin/sh", "-c", script}, -1, limits);
  EXPECT_TRUE(child.ok()) << child.status().message();
  return child.ok() ? std::move(child).value() : nullptr;
}

Result<std::string> ReadToEnd(Child& child) {
  std::string out;
  uint8_t buffer[100];
  while (true) {
    WEIR_ASSIGN_OR_RETURN(const int64_t n, child.Read(buffer, sizeof(buffer)));
    if (n == 0) return out;
    out.append(reinterpret_cast<char*>(buffer), static_cast<size_t>(n));
  }
}

// Leaves neither running nor zombie children.
void ExpectNoChildren() {
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Child, OutputAndEnd) {
  {
    auto child = Shell("printf abc; sleep 0.1; printf '%s' def; echo fine >&2", {});
    const Result<std::string> text = ReadToEnd(*child);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, "abcdef");
    EXPECT_TRUE(child->Finish().ok());
  }
  ExpectNoChildren();
}

#ifdef __linux__
// Where memory is short, as in a control group, the kernel ends a decoder and not the program that started it.
TEST(Child, IsTheFirstToEndWhereMemoryIsShort) {
  auto child = Shell("sleep 0.2; cat /proc/self/oom_score_adj", {});
  const Result<std::string> text = ReadToEnd(*child);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, "1000\n");
  EXPECT_TRUE(child->Finish().ok());
}
#endif

// What a shell in a sandbox that has the system's programs and `allowed` says and how it ends.
class SandboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Status status;
    std::thread([&] { status = EnterSandbox({}); }).join();
    if (!status.ok()) GTEST_SKIP() << status.message();
    folder_ = ::testing::TempDir() + "weir_sandbox_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    for (const char* name : {"/allowed", "/secret"}) std::ofstream(folder_ + name) << name;
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  Status Run(const std::string& script, std::string* out = nullptr, int stdin_fd = -1, bool network = false) {
    Sandbox sandbox;
    sandbox.readable = {"/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/nonexistent", folder_ + "/allowed"};
    sandbox.writable = {"/dev/null"};
    sandbox.readable_fd = stdin_fd;
    sandbox.network = network;
    auto child =
        Child::Start({"/bin/bash", "-c", "cd " + folder_ + ";" + script}, stdin_fd, {}, ChildErrors::kKept, &sandbox);
    if (!child.ok()) return child.status();
    Result<std::string> text = ReadToEnd(**child);
    if (!text.ok()) return text.status();
    if (out != nullptr) *out = *text;
    return (*child)->Finish();
  }
  void ExpectRefused(const std::string& script) {
    std::string out;
    const Status status = Run(script, &out);
    EXPECT_FALSE(status.ok()) << script;
    EXPECT_EQ(out, "") << script;
  }
  std::string folder_;
};

TEST_F(SandboxTest, OnlyWhatIsAllowedCanBeRead) {
  std::string out;
  ASSERT_TRUE(Run("cat allowed", &out).ok());
  EXPECT_EQ(out, "/allowed");
  EXPECT_NE(Run("cat secret").message().find("ermission denied"), std::string::npos);
  for (const char* script : {"cat /etc/passwd", "ls .", "cat /proc/$PPID/environ", "cat /proc/$PPID/cmdline"}) {
    ExpectRefused(script);
  }
}

TEST_F(SandboxTest, NothingCanBeWritten) {
  for (const char* script : {"echo x >new", "echo x >>allowed", "rm allowed", "mv allowed other", "mkdir new",
                             "ln -s allowed new", "truncate -s 0 allowed", "echo x >/dev/shm/weir_sandbox"}) {
    ExpectRefused(script);
  }
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/allowed"), 8u);
  EXPECT_TRUE(Run("echo x >/dev/null").ok());
  // The process itself, and its other threads, can do all this.
  std::ofstream(folder_ + "/ours") << "x";
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/ours"));
}

TEST_F(SandboxTest, AnOpenFileCanBeOpenedAgain) {
  const int fd = open((folder_ + "/secret").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::string out;
  const Status status = Run("cat /dev/fd/0 /dev/fd/0", &out, fd);
  close(fd);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out, "/secret/secret");
}

TEST_F(SandboxTest, NoNetworkNoNamespacesNoMounts) {
  const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t n = sizeof(address);
  ASSERT_EQ(bind(server, reinterpret_cast<sockaddr*>(&address), n), 0);
  ASSERT_EQ(listen(server, 4), 0);
  ASSERT_EQ(getsockname(server, reinterpret_cast<sockaddr*>(&address), &n), 0);
  const std::string connect = "exec 3<>/dev/tcp/127.0.0.1/" + std::to_string(ntohs(address.sin_port));
  ExpectRefused(connect);
  EXPECT_TRUE(Run(connect, nullptr, -1, /*network=*/true).ok());
  close(server);
  for (const char* script : {"unshare -U true", "unshare -r -n true", "mount -t tmpfs none .", "chroot / true"}) {
    ExpectRefused(script);
  }
  EXPECT_TRUE(Run("(true) | cat & wait").ok()) << "processes of its own";
}

TEST(Child, ArgumentsAreNotInterpreted) {
  auto child = Child::Start({"printf", "%s|%s", "$(id)", "a b; exit 3"}, -1, {});
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(*ReadToEnd(**child), "$(id)|a b; exit 3");
  EXPECT_TRUE((*child)->Finish().ok());
}

TEST(Child, MoreThanAPipeHoldsOnBothOutputs) {
  auto child = Shell("head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero; exit 4", {10'000});
  const Result<std::string> text = ReadToEnd(*child);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->size(), 200000u);
  EXPECT_EQ(child->Finish().code(), StatusCode::kCorrupt);
}

TEST(Child, FailureHasTheFirstLineWithoutControlCharacters) {
  auto child = Shell("printf 'moov \\033[31mgone\\nsecond' >&2; exit 7", {});
  ASSERT_TRUE(ReadToEnd(*child).ok());
  const Status status = child->Finish();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(status.message(), "sh: moov  [31mgone");
}

TEST(Child, FailureHasNoAddresses) {
  auto child = Shell("printf '[in#0/y4m @ 0x55d0c0ffee00] [png @ 0x7f00] bad @ 0x at 0x10' >&2; exit 7", {});
  ASSERT_TRUE(ReadToEnd(*child).ok());
  EXPECT_EQ(child->Finish().message(), "sh: [in#0/y4m] [png] bad at 0x10");
}

TEST(Child, WhatTheHostOpenedIsNotInherited) {
#if !WEIR_TEST_CLOSE_FROM
  GTEST_SKIP() << "this C library cannot close what a child would inherit";
#endif
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // without O_CLOEXEC, as most libraries open files
  ChildLimits limits;
  limits.stall_ms = 5000;  // ends the test if the child waits for its own end of the pipe
  auto child = Child::Start({"cat"}, ends[0], limits);
  ASSERT_TRUE(child.ok()) << child.status().message();
  ASSERT_EQ(write(ends[1], "abc", 3), 3);
  close(ends[0]);
  close(ends[1]);
  const Result<std::string> text = ReadToEnd(**child);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, "abc");
  EXPECT_TRUE((*child)->Finish().ok());
}

// The time to end may be as long as the wall limit; a stop request is noticed meanwhile.
TEST(Child, AfterItsOutputItMayWorkOn) {
  const std::string quiet = "exec >/dev/null 2>&1; ";
  ChildLimits limits;
  limits.ending_ms = 200;
  auto child = Shell(quiet + "sleep 1", limits);
  ASSERT_TRUE(ReadToEnd(*child).ok());
  EXPECT_EQ(child->Finish().code(), StatusCode::kIo);
  limits.ending_ms = 0;
  child = Shell(quiet + "sleep 1", limits);
  ASSERT_TRUE(ReadToEnd(*child).ok());
  EXPECT_TRUE(child->Finish().ok());
  limits.wall_ms = 300;
  child = Shell(quiet + "sleep 60", limits);
  ASSERT_TRUE(ReadToEnd(*child).ok());
  EXPECT_EQ(child->Finish().message(), "sh took longer than 300 ms and was ended");
  limits.wall_ms = 0;
  child = Shell(quiet + "sleep 60", limits);
  ASSERT_TRUE(ReadToEnd(*child).ok());
  std::atomic<bool> stop{false};
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop = true;
  });
  EXPECT_EQ(child->Finish(&stop).code(), StatusCode::kCancelled);
  stopper.join();
  ExpectNoChildren();
}

TEST(Child, ErrorsMayBeOutput) {
  auto child = Child::Start({"/bin/sh", "-c", "echo a; echo b >&2; echo c; exit 3"}, -1, {}, ChildErrors::kAsOutput);
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(*ReadToEnd(**child), "a\nb\nc\n");
  EXPECT_EQ((*child)->Finish().message(), "sh failed with code 3");
}

TEST(Child, NoSuchProgram) {
  const auto child = Child::Start({"/nonexistent/ffmpeg"}, -1, {});
  ASSERT_FALSE(child.ok());
  EXPECT_EQ(child.status().code(), StatusCode::kNotFound);
  EXPECT_NE(child.status().message().find("/nonexistent/ffmpeg"), std::string::npos);
  EXPECT_EQ(child.status().message().find("video"), std::string::npos) << "not every program is a decoder";
  EXPECT_EQ(Child::Start({}, -1, {}).status().code(), StatusCode::kInvalidArgument);
  ExpectNoChildren();
}

TEST(Child, AHangingChildIsEnded) {
  const Clock::time_point start = Clock::now();
  {
    auto child = Shell("printf x; sleep 60", {300});
    const Result<std::string> text = ReadToEnd(*child);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.status().code(), StatusCode::kIo);
    EXPECT_NE(text.status().message().find("300 ms"), std::string::npos) << text.status().message();
  }
  {
    // Its output ends, but it keeps running.
    auto child = Shell("exec 1>&- 2>&-; sleep 60", {300});
    ASSERT_TRUE(ReadToEnd(*child).ok());
    EXPECT_EQ(child->Finish().code(), StatusCode::kIo);
  }
  {
    ChildLimits limits;
    limits.stall_ms = 200;
    auto child = Shell("for i in 1 2 3 4; do sleep 0.1; printf .; done; sleep 60", limits);
    const Result<std::string> text = ReadToEnd(*child);
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.status().message().find("gave nothing for 200 ms"), std::string::npos) << text.status().message();
  }
  EXPECT_LT(SecondsSince(start), 20);
  ExpectNoChildren();
}

TEST(Child, ItsOwnChildrenEndWithIt) {
  uint8_t buffer[64];
  pid_t grandchild = 0;
  {
    auto child = Shell("sleep 60 & echo $!; wait", {});
    const Result<int64_t> n = child->Read(buffer, sizeof(buffer));
    ASSERT_TRUE(n.ok());
    grandchild = std::stoi(std::string(reinterpret_cast<char*>(buffer), static_cast<size_t>(*n)));
  }
  // We cannot wait for it: the process that adopted it may take a moment.
  for (int i = 0; i < 500; ++i) {
    if (kill(grandchild, 0) != 0) return;
    std::ifstream stat("/proc/" + std::to_string(grandchild) + "/stat");
    std::string text;
    std::getline(stat, text);
    if (text.find(") Z") != std::string::npos) return;  // a zombie, waiting for its adopter
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ADD_FAILURE() << "process " << grandchild << " is still there";
}

TEST(Child, ProcessorTimeIsLimited) {
  ChildLimits limits;
  limits.cpu_s = 1;
  limits.wall_ms = 60'000;
  auto child = Shell("while :; do :; done", limits);
  ASSERT_TRUE(ReadToEnd(*child).ok());
  const Status status = child->Finish();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_NE(status.message().find("1 s of processor time"), std::string::npos) << status.message();
}

TEST(Child, KilledFromOutside) {
  auto child = Shell("kill -9 $$", {});
  ASSERT_TRUE(ReadToEnd(*child).ok());
  const Status status = child->Finish();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.message(), "sh was ended by signal 9");
}

TEST(Child, StopsWhenAsked) {
  std::atomic<bool> stop = false;
  auto child = Shell("sleep 60", {});
  std::thread other([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  uint8_t byte;
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(child->Read(&byte, 1, &stop).status().code(), StatusCode::kCancelled);
  EXPECT_LT(SecondsSince(start), 10);
  other.join();
  ExpectNoChildren();
}

}  // namespace
}  // namespace weir
