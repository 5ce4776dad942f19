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
#include <vector>

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

  // Three matrices of 10, 5,000 and 4,096 bytes with values of their own.
  void Keep3(PackedFile& file) {
    for (int i = 0; i < 3; ++i) {
      memory_[i].assign(static_cast<size_t>(kBytes[i]), static_cast<uint8_t>(i + 1));
      EXPECT_EQ(file.Next(100 + i, kBytes[i]), nullptr);
      file.Keep(100 + i, memory_[i].data(), kBytes[i]);
    }
  }
  // Writes them.
  void Write(const std::string& key = "key") {
    const auto file = PackedFile::Open(folder_, "m", key);
    ASSERT_FALSE(file->reading());
    Keep3(*file);
    file->Finish(true);
    WriteAll(*file);
    EXPECT_FALSE(file->writing());
    EXPECT_EQ(file->note(), "");
  }
  // Whether the file is there and holds what Write() wrote.
  bool Holds(const std::string& key = "key") {
    const auto file = PackedFile::Open(folder_, "m", key);
    if (!file->reading()) return false;
    for (int i = 0; i < 3; ++i) {
      const uint8_t* piece = file->Next(100 + i, kBytes[i]);
      if (piece == nullptr) return false;
      if (std::count(piece, piece + kBytes[i], i + 1) != kBytes[i]) return false;
    }
    file->Finish(true);
    return file->note().empty();
  }
  std::string path() const { return folder_ + "/m.packed"; }
  int64_t NumFiles() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  static constexpr int64_t kBytes[3] = {10, 5000, 4096};
  static void WriteAll(PackedFile& file) {
    while (file.WriteSome()) {
    }
  }
  std::vector<uint8_t> memory_[3];
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
  for (const char* what : {"opened", "kept", "refused", "finished", "some"}) {
    const auto file = PackedFile::Open(folder_, "m", "key");
    if (*what == 'o') continue;
    Keep3(*file);
    if (*what == 'k') continue;
    file->Finish(*what != 'r');
    EXPECT_EQ(file->writing(), *what != 'r');
    if (*what == 's') {
      EXPECT_TRUE(file->WriteSome());
    }
    EXPECT_EQ(NumFiles(), *what == 'r' ? 0 : 1) << what;
    EXPECT_FALSE(fs::exists(path())) << what;
  }
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(PackedFileTest, LargeMatricesAreWrittenInSteps) {
  const std::vector<uint8_t> large((70 << 20) + 5, 9);  // beyond what the disk is kept behind
  {
    const auto file = PackedFile::Open(folder_, "m", "key");
    Keep3(*file);
    file->Keep(103, const_cast<uint8_t*>(large.data()), std::ssize(large));
    file->Finish(true);
    file->Keep(104, memory_[0].data(), 10);  // too late
    EXPECT_EQ(file->matrices().size(), 4u);
    int n_steps = 1;
    while (file->WriteSome()) ++n_steps;
    EXPECT_GT(n_steps, 70);
    EXPECT_EQ(file->note(), "");
  }
  const auto file = PackedFile::Open(folder_, "m", "key");
  ASSERT_TRUE(file->reading());
  for (int i = 0; i < 3; ++i) {
    const uint8_t* piece = file->Next(100 + i, kBytes[i]);
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(std::memcmp(piece, memory_[i].data(), static_cast<size_t>(kBytes[i])), 0);
  }
  const uint8_t* piece = file->Next(103, std::ssize(large));
  ASSERT_NE(piece, nullptr);
  EXPECT_EQ(std::memcmp(piece, large.data(), large.size()), 0);
}

TEST_F(PackedFileTest, NoneOnlyRemembers) {
  const auto file = PackedFile::None();
  Keep3(*file);
  file->Finish(true);
  EXPECT_EQ(file->matrices().size(), 3u);
  EXPECT_FALSE(file->writing());
  EXPECT_EQ(file->note(), "");
}

TEST_F(PackedFileTest, WhatAKilledProcessLeftIsRemoved) {
  fs::create_directory(folder_);
  std::ofstream(path() + ".part-abcdef") << "x";
  std::ofstream(folder_ + "/other.packed.part-abcdef") << "x";
  Write();
  EXPECT_EQ(NumFiles(), 2);
  EXPECT_TRUE(fs::exists(folder_ + "/other.packed.part-abcdef"));
}

TEST_F(PackedFileTest, OnlyOneProgramWritesIt) {
  const auto first = PackedFile::Open(folder_, "m", "key");
  const auto second = PackedFile::Open(folder_, "m", "key");
  EXPECT_EQ(second->note(), "another program is writing " + path());
  Keep3(*second);
  second->Finish(true);
  EXPECT_FALSE(second->writing());
  Keep3(*first);
  first->Finish(true);
  WriteAll(*first);
  EXPECT_EQ(first->note(), "");
  EXPECT_TRUE(Holds());
}

TEST_F(PackedFileTest, OtherMatricesEndReading) {
  Write();
  for (const auto& [print, bytes] : {std::pair<uint64_t, int64_t>{101, 10}, {100, 11}}) {
    const auto file = PackedFile::Open(folder_, "m", "key");
    ASSERT_TRUE(file->reading());
    EXPECT_EQ(file->Next(print, bytes), nullptr);
    EXPECT_NE(file->note().find(path()), std::string::npos);
    EXPECT_EQ(file->Next(100, 10), nullptr);
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
  EXPECT_EQ(file->Next(1, 8), nullptr);
  file->Finish(true);
}

TEST_F(PackedFileTest, NothingIsBegunWithoutRoomForAll) {
  const auto file = PackedFile::Open(folder_, "m", "key", INT64_MAX);
  EXPECT_NE(file->note().find("packed weights need about"), std::string::npos) << file->note();
  EXPECT_EQ(file->Next(1, 8), nullptr);
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(PackedFileTest, AFolderInTheFilesPlaceIsNoted) {
  fs::create_directories(path());
  const auto file = PackedFile::Open(folder_, "m", "key");
  EXPECT_NE(file->note().find(path() + " is no file"), std::string::npos) << file->note();
  EXPECT_EQ(file->Next(1, 8), nullptr);
}

TEST_F(PackedFileTest, AFullDiskIsNotedAndLeavesNothing) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 64 << 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto file = PackedFile::Open(folder_, "m", "key");
  std::vector<uint8_t> large(1 << 20);
  file->Keep(1, large.data(), std::ssize(large));
  file->Finish(true);
  WriteAll(*file);
  EXPECT_NE(file->note().find("cannot write packed weights to " + path()), std::string::npos) << file->note();
  EXPECT_FALSE(file->writing());
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(NumFiles(), 0);
}

}  // namespace
}  // namespace weir
