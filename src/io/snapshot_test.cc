// SPDX-License-Identifier: Apache-2.0
#include "io/snapshot.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>

#include "base/rng.h"
#include "io/snapshot_test_util.h"

namespace weir {
namespace {

constexpr int64_t kMax = int64_t{1} << 30;

class SnapshotTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "weir-snapshot-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder_ + "/a.weir";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Bytes() {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Descriptors of this process that are of a file in the folder.
  std::vector<int> Open() {
    std::vector<int> out;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;  // the listing's own
      const std::string of = std::filesystem::read_symlink(entry.path(), gone).string();
      if (of.starts_with(folder_)) out.push_back(std::stoi(entry.path().filename().string()));
    }
    return out;
  }
  void Put(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  std::string folder_, path_;
};

std::vector<uint8_t> State(int round, size_t n) {
  Rng rng(static_cast<uint64_t>(round) + 1);
  std::vector<uint8_t> out(n);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(rng.Below(256));
  return out;
}

TEST_F(SnapshotTest, ComesBackAsItWas) {
  for (const size_t n : {0, 1, 7, 8, 9, 4096, 100003}) {
    const std::string text(n / 3, 'x');
    ASSERT_TRUE(WriteSnapshot(path_, text, State(1, n)).ok());
    const auto read = ReadSnapshot(path_, kMax);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->text, text);
    EXPECT_EQ(read->state, State(1, n));
  }
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
}

// What some earlier call was interrupted by does not matter.
TEST_F(SnapshotTest, AnOldErrorIsNoInterruption) {
  errno = EINTR;
  ASSERT_TRUE(WriteSnapshot(path_, "text", State(1, 5000)).ok());
  errno = EINTR;
  const auto read = ReadSnapshot(path_, kMax);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->state, State(1, 5000));
}

TEST_F(SnapshotTest, EveryDamagedByteIsFound) {
  ASSERT_TRUE(WriteSnapshot(path_, "{\"a\":1}", State(2, 61)).ok());
  const std::string good = Bytes();
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {1, 128}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      Put(bad);
      EXPECT_FALSE(ReadSnapshot(path_, kMax).ok()) << at;
    }
    Put(good.substr(0, at));
    EXPECT_EQ(ReadSnapshot(path_, kMax).status().code(), StatusCode::kCorrupt) << at;
  }
  Put(good + "x");
  EXPECT_EQ(ReadSnapshot(path_, kMax).status().code(), StatusCode::kCorrupt);
}

// A process without a standard input gets its number for the next file.
TEST_F(SnapshotTest, ComesBackWhereStandardInputIsClosed) {
  ASSERT_TRUE(WriteSnapshot(path_, "text", State(1, 100)).ok());
  const int input = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  EXPECT_TRUE(WriteSnapshot(path_, "text", State(1, 100)).ok());
  const auto read = ReadSnapshot(path_, kMax);
  EXPECT_EQ(fcntl(STDIN_FILENO, F_GETFD), -1) << "it is closed again";
  if (input >= 0) {
    dup2(input, STDIN_FILENO);
    close(input);
  }
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->state, State(1, 100));
}

TEST_F(SnapshotTest, LeavesNoDescriptorOpenNorToAChild) {
  ASSERT_TRUE(WriteSnapshot(path_, "text", State(1, 100)).ok());
  EXPECT_TRUE(Open().empty());
  {
    const auto reader = SnapshotReader::Open(path_, kMax);
    ASSERT_TRUE(reader.ok());
    const auto writer = SnapshotWriter::Begin(path_, "text", 100);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(SnapshotWriter::Begin(path_, "text", 100).status().code(), StatusCode::kOverBudget) << "it is locked";
    EXPECT_EQ(Open().size(), 2u);
    for (const int fd : Open()) EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_TRUE(Open().empty());
  const std::string pipe = path_ + ".part";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_EQ(WriteSnapshot(path_, "new", {}).code(), StatusCode::kIo);
  EXPECT_EQ(Open(), std::vector<int>{reader});
  close(reader);
}

// Of the format's first version: files that were written once can be read for ever.
TEST_F(SnapshotTest, TheChecksumIsThatOfTheFormat) {
  for (const auto& [n_text, n_state, want] : {std::tuple<size_t, size_t, uint64_t>{5, 21, 14666367726532417039u},
                                              {16, 8, 14568732916408765376u},
                                              {0, 0, 14786180174898289657u}}) {
    ASSERT_TRUE(WriteSnapshot(path_, std::string(n_text, 'x'), State(1, n_state)).ok());
    uint64_t sum = 0;
    std::memcpy(&sum, Bytes().data() + 32, sizeof(sum));
    EXPECT_EQ(sum, want) << n_text << ", " << n_state;
  }
}

TEST_F(SnapshotTest, ANameWithoutAFolderIsOfTheWorkingOne) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const Status written = WriteSnapshot("b.weir", "text", State(1, 10));
  std::filesystem::current_path(before);
  EXPECT_TRUE(written.ok()) << written.message();
  EXPECT_TRUE(ReadSnapshot(folder_ + "/b.weir", kMax).ok());
}

TEST_F(SnapshotTest, HostileFiles) {
  EXPECT_EQ(ReadSnapshot(path_, kMax).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadSnapshot(folder_, kMax).status().code(), StatusCode::kIo);
  ASSERT_EQ(mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(ReadSnapshot(folder_ + "/pipe", kMax).status().code(), StatusCode::kIo);
  ASSERT_TRUE(WriteSnapshot(path_, "", State(3, 100)).ok());
  EXPECT_EQ(ReadSnapshot(path_, 139).status().code(), StatusCode::kOverBudget);
  EXPECT_TRUE(ReadSnapshot(path_, 140).ok());
  std::string bytes = Bytes();
  bytes[8] = 2;  // version
  Put(bytes);
  EXPECT_EQ(ReadSnapshot(path_, kMax).status().code(), StatusCode::kUnsupported);
  bytes[8] = 1;
  for (size_t at = 16; at < 32; ++at) bytes[at] = '\xFF';  // sizes beyond everything
  Put(bytes);
  EXPECT_EQ(ReadSnapshot(path_, kMax).status().code(), StatusCode::kCorrupt);
}

TEST_F(SnapshotTest, WhatCannotBeWrittenLeavesTheOldOne) {
  EXPECT_EQ(WriteSnapshot(folder_ + "/no/a", "", {}).code(), StatusCode::kIo);
  ASSERT_TRUE(WriteSnapshot(path_, "old", State(4, 10)).ok());
  std::filesystem::create_directory(path_ + ".part");
  EXPECT_EQ(WriteSnapshot(path_, "new", State(5, 10)).code(), StatusCode::kIo);
  EXPECT_EQ(ReadSnapshot(path_, kMax)->text, "old");
  // A symlink in the part file's place is not followed.
  std::filesystem::remove(path_ + ".part");
  std::ofstream(folder_ + "/other") << "precious";
  std::filesystem::create_symlink(folder_ + "/other", path_ + ".part");
  EXPECT_EQ(WriteSnapshot(path_, "new", State(5, 10)).code(), StatusCode::kIo);
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/other"), 8u);
}

// A pipe in the part file's place is neither waited for nor written to, and the error says what it is.
TEST_F(SnapshotTest, APipeInThePartsPlaceIsNamed) {
  const std::string part = path_ + ".part";
  ASSERT_EQ(mkfifo(part.c_str(), 0600), 0);
  EXPECT_EQ(WriteSnapshot(path_, "new", State(5, 10)).code(), StatusCode::kIo);
  const int reader = open(part.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  errno = 0;
  const Status status = WriteSnapshot(path_, "new", State(5, 10));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.message(), part + " is no regular file");
  char byte = 0;
  EXPECT_EQ(read(reader, &byte, 1), 0) << "something was written to it";
  close(reader);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SnapshotTest, ATextBeyondTheLimitIsNeitherWrittenNorRead) {
  const std::string text(static_cast<size_t>(kMaxSnapshotText) + 1, 'x');
  EXPECT_EQ(WriteSnapshot(path_, text, {}).code(), StatusCode::kOverBudget);
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_TRUE(WriteSnapshot(path_, std::string_view(text).substr(1), {}).ok());
  ASSERT_TRUE(ReadSnapshot(path_, kMax).ok());
  // One byte more than may be read, in a file that has it.
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) + 1);
  EXPECT_EQ(ReadSnapshot(path_, kMax).status().code(), StatusCode::kCorrupt);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  const uint64_t n_text = text.size();
  file.seekp(16);
  file.write(reinterpret_cast<const char*>(&n_text), sizeof(n_text));
  file.close();
  EXPECT_EQ(ReadSnapshot(path_, kMax).status().code(), StatusCode::kOverBudget);
}

// Pieces of any size give the same file.
TEST_F(SnapshotTest, PiecesMakeTheSameFile) {
  const std::vector<uint8_t> state = State(6, 5000);
  ASSERT_TRUE(WriteSnapshot(path_, "text", state).ok());
  const std::string whole = Bytes();
  Rng rng(11);
  for (const size_t most : {1, 7, 8, 9, 64, 3000}) {
    auto file = SnapshotWriter::Begin(path_, "text", std::ssize(state));
    ASSERT_TRUE(file.ok()) << file.status().message();
    for (size_t at = 0; at < state.size();) {
      const size_t n = std::min<size_t>(rng.Below(most + 1), state.size() - at);
      ASSERT_TRUE((*file)->Write({state.data() + at, n}).ok());
      at += n;
    }
    ASSERT_TRUE((*file)->Finish().ok());
    EXPECT_EQ(Bytes(), whole) << most;
  }
  for (const size_t n : {0, 3, 4, 8}) {  // pieces of nothing, where none is
    auto file = SnapshotWriter::Begin(path_, "text", std::ssize(state));
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write({state.data(), n}).ok());
    ASSERT_TRUE((*file)->Write({}).ok());
    ASSERT_TRUE((*file)->Write({state.data() + n, state.size() - n}).ok());
    ASSERT_TRUE((*file)->Finish().ok());
    EXPECT_EQ(Bytes(), whole) << n;
  }
  auto read = SnapshotReader::Open(path_, kMax);
  ASSERT_TRUE(read.ok()) << read.status().message();
  std::vector<uint8_t> back(state.size());
  for (int round = 0; round < 2; ++round) {
    for (size_t at = 0; at < back.size();) {
      const size_t n = std::min<size_t>(rng.Below(700), back.size() - at);
      ASSERT_TRUE((*read)->Read({back.data() + at, n}).ok());
      at += n;
    }
    EXPECT_EQ(back, state);
    EXPECT_EQ((*read)->n_left(), 0);
    EXPECT_EQ((*read)->Read({back.data(), 1}).code(), StatusCode::kInvalidArgument);
    (*read)->Rewind();
    EXPECT_TRUE((*read)->Skip(0).ok());
    ASSERT_TRUE((*read)->Skip(4990).ok());
    EXPECT_EQ((*read)->Skip(11).code(), StatusCode::kInvalidArgument);
    ASSERT_TRUE((*read)->Read({back.data(), 10}).ok());
    EXPECT_TRUE(std::equal(back.begin(), back.begin() + 10, state.end() - 10));
    (*read)->Rewind();
  }
}

TEST_F(SnapshotTest, WhatIsNotFinishedIsNotThere) {
  ASSERT_TRUE(WriteSnapshot(path_, "old", State(7, 100)).ok());
  {
    auto file = SnapshotWriter::Begin(path_, "new", 100);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->Write(State(8, 60)).ok());
    EXPECT_EQ((*file)->Write(State(8, 41)).code(), StatusCode::kInternal);
    EXPECT_EQ((*file)->Finish().code(), StatusCode::kInternal);
  }
  EXPECT_EQ(ReadSnapshot(path_, kMax)->text, "old");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
  // A state that changes while it is read is detected: here, truncation.
  auto read = SnapshotReader::Open(path_, kMax);
  ASSERT_TRUE(read.ok());
  std::filesystem::resize_file(path_, 60);
  std::vector<uint8_t> state(100);
  EXPECT_EQ((*read)->Read(state).code(), StatusCode::kCorrupt);
  ASSERT_TRUE(WriteSnapshot(path_, "old", State(7, 100)).ok());
  read = SnapshotReader::Open(path_, kMax);
  ASSERT_TRUE(read.ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a file's clock ticks
  const std::string other = Bytes();
  std::fstream(path_, std::ios::binary | std::ios::in | std::ios::out).write(other.data(), std::ssize(other));
  EXPECT_TRUE((*read)->Read({state.data(), 99}).ok());
  EXPECT_EQ((*read)->Read({state.data(), 1}).code(), StatusCode::kCorrupt);
}

TEST_F(SnapshotTest, WritersExcludeEachOther) {
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0; i < 30; ++i) {
        const Status status = WriteSnapshot(path_, std::string(1, static_cast<char>('a' + w)), State(w, 50000));
        EXPECT_TRUE(status.ok() || status.code() == StatusCode::kOverBudget) << status.message();
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const auto read = ReadSnapshot(path_, kMax);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->state, State(read->text[0] - 'a', 50000));
}

TEST_F(SnapshotTest, AKillLeavesTheOldOrTheNew) {
  constexpr size_t kBytes = 1 << 20;
  ASSERT_TRUE(WriteSnapshot(path_, "0", State(0, kBytes)).ok());
  Rng rng(7);
  int held = 0, n_new = 0;
  for (int round = 1; round <= 60; ++round) {
    const std::vector<uint8_t> state = State(round, kBytes);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(WriteSnapshot(path_, std::to_string(round), state).ok() ? 0 : 1);
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(6000)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const auto read = ReadSnapshot(path_, kMax);
    ASSERT_TRUE(read.ok()) << "round " << round << ": " << read.status().message();
    const int now = std::stoi(read->text);
    ASSERT_TRUE(now == held || now == round) << now << " after " << held << " in round " << round;
    if (WIFEXITED(status)) {
      EXPECT_EQ(now, round);
    }
    EXPECT_EQ(read->state, State(now, kBytes));
    n_new += now == round;
    held = now;
  }
  RecordProperty("new", n_new);
  ASSERT_TRUE(WriteSnapshot(path_, "last", State(1, 10)).ok());  // whatever part files were left
}

}  // namespace
}  // namespace weir
