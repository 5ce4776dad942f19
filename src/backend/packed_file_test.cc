// SPDX-License-Identifier: Apache-2.0
#include "backend/packed_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

class PackedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "packed_file-" + testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Writes pieces of 10, 5,000 and 4,096 bytes with values of their own.
  void Write(const std::string& key = "key") {
    const auto file = PackedFile::Open(folder_, "m", key);
    ASSERT_FALSE(file->reading());
    for (int i = 0; i < 3; ++i) {
      const PackedFile::Piece piece = file->Next(100 + i, kBytes[i]);
      ASSERT_NE(piece.data, nullptr) << file->note();
      EXPECT_FALSE(piece.filled);
      EXPECT_EQ(std::count(piece.data, piece.data + kBytes[i], 0), kBytes[i]);
      std::memset(piece.data, i + 1, static_cast<size_t>(kBytes[i]));
    }
    file->Finish(true);
    EXPECT_EQ(file->note(), "");
  }
  // Whether the file is there and holds what Write() wrote.
  bool Holds(const std::string& key = "key") {
    const auto file = PackedFile::Open(folder_, "m", key);
    if (!file->reading()) return false;
    for (int i = 0; i < 3; ++i) {
      const PackedFile::Piece piece = file->Next(100 + i, kBytes[i]);
      if (piece.data == nullptr || !piece.filled) return false;
      if (std::count(piece.data, piece.data + kBytes[i], i + 1) != kBytes[i]) return false;
    }
    file->Finish(true);
    return file->note().empty();
  }
  std::string path() const { return folder_ + "/m.packed"; }
  int64_t NumFiles() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  static constexpr int64_t kBytes[3] = {10, 5000, 4096};
  std::string folder_;
};

TEST_F(PackedFileTest, HoldsWhatWasWritten) {
  Write();
  EXPECT_TRUE(Holds());
  EXPECT_TRUE(Holds());
  EXPECT_EQ(NumFiles(), 1);
  struct stat info;
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(PackedFileTest, AnotherKeyReplacesTheFile) {
  Write();
  EXPECT_FALSE(Holds("other"));
  EXPECT_TRUE(Holds());  // nothing was finished
  Write("other");
  EXPECT_TRUE(Holds("other"));
  EXPECT_FALSE(Holds());
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(PackedFileTest, NothingUnfinishedStays) {
  {
    const auto file = PackedFile::Open(folder_, "m", "key");
    ASSERT_NE(file->Next(1, 100).data, nullptr);
  }
  EXPECT_EQ(NumFiles(), 0);
  {
    const auto file = PackedFile::Open(folder_, "m", "key");
    ASSERT_NE(file->Next(1, 100).data, nullptr);
    file->Finish(false);
  }
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(PackedFileTest, WhatAKilledProcessLeftIsRemoved) {
  fs::create_directory(folder_);
  std::ofstream(path() + ".part-abcdef") << "x";
  std::ofstream(folder_ + "/other.packed.part-abcdef") << "x";
  Write();
  EXPECT_EQ(NumFiles(), 2);
  EXPECT_TRUE(fs::exists(folder_ + "/other.packed.part-abcdef"));
}

TEST_F(PackedFileTest, OneThatIsBeingWrittenStays) {
  const auto first = PackedFile::Open(folder_, "m", "key");
  const PackedFile::Piece piece = first->Next(100, 8);
  ASSERT_NE(piece.data, nullptr);
  Write();
  std::memset(piece.data, 7, 8);
  first->Finish(true);
  EXPECT_EQ(first->note(), "");
}

TEST_F(PackedFileTest, OtherMatricesEndReading) {
  Write();
  for (const auto& [print, bytes] : {std::pair<uint64_t, int64_t>{101, 10}, {100, 11}}) {
    const auto file = PackedFile::Open(folder_, "m", "key");
    ASSERT_TRUE(file->reading());
    EXPECT_EQ(file->Next(print, bytes).data, nullptr);
    EXPECT_NE(file->note().find(path()), std::string::npos);
    EXPECT_EQ(file->Next(100, 10).data, nullptr);
  }
}

// Every byte of header and table is checked, and every length.
TEST_F(PackedFileTest, DamageIsNoticed) {
  Write();
  std::ifstream in(path(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto put = [&](const std::string& bytes) {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
  };
  ASSERT_TRUE(Holds());
  const size_t table = whole.size() - size_t{3} * 24;
  for (size_t at = 0; at < whole.size(); ++at) {
    if (at == 43) at = table;  // behind header and key: contents
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    put(bytes);
    EXPECT_FALSE(Holds()) << "byte " << at;
  }
  for (size_t n : {size_t{0}, size_t{1}, size_t{39}, size_t{4095}, size_t{4096}, table, whole.size() - 1}) {
    put(whole.substr(0, n));
    EXPECT_FALSE(Holds()) << n << " bytes";
  }
  put(whole + "x");
  EXPECT_FALSE(Holds());
  put(whole);
  EXPECT_TRUE(Holds());
}

TEST_F(PackedFileTest, OneThatOthersCouldWriteIsNotRead) {
  Write();
  chmod(path().c_str(), 0620);
  EXPECT_FALSE(Holds());
  chmod(path().c_str(), 0600);
  EXPECT_TRUE(Holds());
  fs::rename(path(), folder_ + "/elsewhere");
  fs::create_symlink("elsewhere", path());
  EXPECT_FALSE(Holds());
}

TEST_F(PackedFileTest, AFolderThatCannotBeMadeIsNoted) {
  const auto file = PackedFile::Open(folder_ + "/a/b", "m", "key");
  EXPECT_NE(file->note().find(folder_ + "/a/b"), std::string::npos);
  EXPECT_EQ(file->Next(1, 8).data, nullptr);
  file->Finish(true);
}

TEST_F(PackedFileTest, NothingIsBegunWithoutRoomForAll) {
  const auto file = PackedFile::Open(folder_, "m", "key", INT64_MAX);
  EXPECT_NE(file->note().find("packed weights need about"), std::string::npos) << file->note();
  EXPECT_EQ(file->Next(1, 8).data, nullptr);
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(PackedFileTest, AFolderInTheFilesPlaceIsNoted) {
  fs::create_directories(path());
  const auto file = PackedFile::Open(folder_, "m", "key");
  EXPECT_NE(file->note().find(path() + " is no file"), std::string::npos) << file->note();
  EXPECT_EQ(file->Next(1, 8).data, nullptr);
}

TEST_F(PackedFileTest, AFullDiskIsNotedAndLeavesNothing) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 64 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto file = PackedFile::Open(folder_, "m", "key");
  EXPECT_NE(file->Next(1, 4096).data, nullptr);
  EXPECT_EQ(file->Next(2, 1 << 20).data, nullptr);
  EXPECT_NE(file->note(), "");
  file->Finish(true);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(NumFiles(), 0);
}

}  // namespace
}  // namespace weir
