// SPDX-License-Identifier: Apache-2.0
// `weir serve --sandbox`: everything that a server does goes on, and the process has no other rights.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/sandbox.h"
#include "cli/process.h"
#include "serve/picture_client.h"
#include "serve/session_client.h"
#include "support/pictures.h"

namespace weir::testing {
namespace {

class SandboxServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Status status;
    std::thread([&] { status = EnterSandbox({}); }).join();
    if (!status.ok()) GTEST_SKIP() << status.message();
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // at the end it would trace the process, which the sandbox forbids
    folder_ = ::testing::TempDir() + "weir_sandbox_server_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_ + "/snapshots");
    std::filesystem::create_directories(folder_ + "/archives");
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  std::string folder_;
};

TEST_F(SandboxServerTest, AllGoesOn) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  ServerProcess server({"--sandbox", "--mmproj", VisionFile("clip.gguf"), "--pot", "128", "--snapshots",
                        folder_ + "/snapshots", "--recall", "words", "--recall-dir", folder_ + "/archives"},
                       VisionFile("llava.gguf"));
  const HttpAnswer seen = server.Post("/v1/chat/completions", PictureChat({PicturePart(PpmBytes(8, 8))}));
  EXPECT_EQ(seen.status, 200) << seen.body;
  Client client(server);
  const std::string id = client.Create();
  client.Talk(id, "man");
  EXPECT_EQ(client.Do(id, "save", {{"name", "one"}}).status, 200);
  EXPECT_EQ(server.Post(kSessions + "/restore", {{"name", "one"}}).status, 201);
  EXPECT_FALSE(std::filesystem::is_empty(folder_ + "/archives"));
  EXPECT_EQ(server.Get("/metrics").status, 200);
  EXPECT_EQ(server.Terminate(), 0);
}

TEST_F(SandboxServerTest, FilesThatNoFlagNamesAreOutOfReach) {
  const std::string snapshots = folder_ + "/snapshots";
  // A snapshot that somebody replaced by a link to a file elsewhere.
  const auto restore = [&](const ServerProcess& server) {
    return server.Post(kSessions + "/restore", {{"name", "linked"}}).status;
  };
  {
    const ServerProcess server({"--snapshots", snapshots, "--pot", "64"});
    Client client(server);
    const std::string id = client.Create();
    client.Append(id, "the man");
    ASSERT_EQ(client.Do(id, "save", {{"name", "linked"}}).status, 200);
    std::filesystem::rename(snapshots + "/linked.weir", folder_ + "/elsewhere.weir");
    std::filesystem::create_symlink(folder_ + "/elsewhere.weir", snapshots + "/linked.weir");
    EXPECT_EQ(restore(server), 201);
  }
  const ServerProcess server({"--sandbox", "--snapshots", snapshots, "--pot", "64"});
  EXPECT_GE(restore(server), 400);
}

TEST_F(SandboxServerTest, AModelThatIsNotThereIsSaidSo) {
  const RunResult run = RunWeir({"serve", "--sandbox", "-m", folder_ + "/none.gguf", "--port", "0"});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("none.gguf"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace weir::testing
