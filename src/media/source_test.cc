// SPDX-License-Identifier: Apache-2.0
#include "media/source.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace weir {
namespace {

class SourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "weir-source-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static bool Has(const OpenSource& source, const std::string& word) {
    return std::ranges::find(source.arguments, word) != source.arguments.end();
  }
  std::string folder_;
};

TEST_F(SourceTest, AddressesOpenNothingHere) {
  for (const char* address :
       {"http://camera/stream", "https://camera/stream", "rtsp://u:p@camera/1", "rtsps://camera/1"}) {
    EXPECT_TRUE(IsLiveSource(address));
    const auto source = OpenMediaSource(address, /*again=*/true);
    ASSERT_TRUE(source.ok()) << source.status().message();
    EXPECT_TRUE(source->live && source->once);
    EXPECT_EQ(source->fd, -1);
    EXPECT_EQ(source->arguments.back(), address);
    // Neither files nor addresses of other kinds can be named by what comes.
    const std::string& protocols = source->arguments[1];
    EXPECT_EQ(source->arguments[0], "-protocol_whitelist");
    EXPECT_EQ(protocols.find("file"), std::string::npos) << protocols;
    EXPECT_EQ(protocols.find("pipe"), std::string::npos) << protocols;
    EXPECT_EQ(Has(*source, "-format_whitelist"), std::string(address).starts_with("http")) << address;
  }
  EXPECT_FALSE(IsLiveSource("video.mp4"));
}

TEST_F(SourceTest, PasswordsAreNotShown) {
  EXPECT_EQ(WithoutPassword("rtsp://user:secret@camera:554/1@2"), "rtsp://...@camera:554/1@2");
  EXPECT_EQ(WithoutPassword("rtsp://a@b:secret@camera"), "rtsp://...@camera");
  EXPECT_EQ(WithoutPassword("rtsp://camera/user@1"), "rtsp://camera/user@1");
  EXPECT_EQ(WithoutPassword("a@b.mp4"), "a@b.mp4");
  const auto other = OpenMediaSource("ftp://user:secret@host/a", false);
  EXPECT_EQ(other.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(other.status().message().find("secret"), std::string::npos) << other.status().message();
  EXPECT_NE(other.status().message().find("ftp://"), std::string::npos) << other.status().message();
}

TEST_F(SourceTest, WhatIsNoSourceIsNamed) {
  EXPECT_EQ(OpenMediaSource("", false).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenMediaSource(std::string("a\0b", 3), false).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenMediaSource(folder_, false).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenMediaSource("/dev/null", false).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenMediaSource(folder_ + "/none", false).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenMediaSource(std::string(5000, 'a'), false).status().code(), StatusCode::kIo);
  std::ofstream(folder_ + "/empty");
  EXPECT_EQ(OpenMediaSource(folder_ + "/empty", false).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(OpenMediaSource(folder_ + "/empty/x", false).status().code(), StatusCode::kNotFound);
}

TEST_F(SourceTest, PipesAreReadOnce) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(OpenMediaSource(pipe, /*again=*/true).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenMediaSource("-", /*again=*/true).status().code(), StatusCode::kInvalidArgument);
  const auto input = OpenMediaSource("-", false);
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(input->fd, STDIN_FILENO);
  EXPECT_FALSE(input->owned);
  EXPECT_TRUE(Has(*input, "pipe:0"));
  const int writer = open(pipe.c_str(), O_RDWR);  // so that it can be opened to be read
  ASSERT_GE(writer, 0);
  const auto piped = OpenMediaSource(pipe, false);
  close(writer);
  ASSERT_TRUE(piped.ok()) << piped.status().message();
  EXPECT_TRUE(piped->once && piped->owned);
  EXPECT_TRUE(Has(*piped, "pipe:0"));
}

// A file's descriptor is closed once, whoever has it at the end.
TEST_F(SourceTest, AFileIsClosedOnce) {
  std::ofstream(folder_ + "/a") << "x";
  int fd = -1;
  {
    auto source = OpenMediaSource(folder_ + "/a", /*again=*/true);
    ASSERT_TRUE(source.ok());
    EXPECT_FALSE(source->once);
    EXPECT_TRUE(Has(*source, "file:/dev/fd/0"));
    EXPECT_FALSE(Has(*source, "-format_whitelist"));  // the user named it
    fd = source->fd;
    const OpenSource moved = *std::move(source);
    EXPECT_EQ(moved.fd, fd);
    EXPECT_EQ(source->fd, -1);
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

}  // namespace
}  // namespace weir
