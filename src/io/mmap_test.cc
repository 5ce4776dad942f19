// SPDX-License-Identifier: Apache-2.0
#include "io/mmap.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

namespace weir {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "weir-mmap-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  static auto OpenFiles() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  }
  // How many maps of a file this process has.
  static int64_t Maps(const std::string& path) {
    std::ifstream maps("/proc/self/maps");
    int64_t n = 0;
    for (std::string line; std::getline(maps, line);) n += line.ends_with(path);
    return n;
  }
  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, HasTheBytesAndNoDescriptor) {
  const std::string path = Write("a", "some bytes"), empty = Write("empty", "");
  const auto before = OpenFiles();
  auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(OpenFiles(), before) << "a map needs none";
  EXPECT_TRUE(std::ranges::equal(file->bytes(), std::string("some bytes")));
  file->ReleasePages();
  EXPECT_TRUE(std::ranges::equal(file->bytes(), std::string("some bytes")));
  const MappedFile moved = *std::move(file);
  EXPECT_TRUE(file->bytes().empty());  // NOLINT(bugprone-use-after-move): what was moved holds nothing
  EXPECT_EQ(moved.bytes().size(), 10);
  EXPECT_GT(moved.changed_ns(), 0);
  EXPECT_FALSE(MappedFile::Open(empty).ok());
  EXPECT_EQ(OpenFiles(), before) << "nor does an error";
}

TEST_F(MappedFileTest, LeavesNoMapBehind) {
  const std::string a = Write("a", "some bytes"), b = Write("b", "other bytes");
  {
    auto file = MappedFile::Open(a), other = MappedFile::Open(b);
    ASSERT_TRUE(file.ok() && other.ok());
    EXPECT_EQ(Maps(a), 1);
    *file = *std::move(other);
    EXPECT_EQ(Maps(a), 0);
    EXPECT_EQ(Maps(b), 1);
    EXPECT_TRUE(std::ranges::equal(file->bytes(), std::string("other bytes")));
  }
  EXPECT_EQ(Maps(b), 0);
}

TEST_F(MappedFileTest, SaysWhatIsWrong) {
  EXPECT_EQ(MappedFile::Open(folder_ / "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::Open(Write("a", "x") + "/b").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::Open(folder_).status().code(), StatusCode::kIo);
  EXPECT_EQ(MappedFile::Open(Write("empty", "")).status().code(), StatusCode::kCorrupt);
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(pipe).status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace weir
