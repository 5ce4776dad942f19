// SPDX-License-Identifier: Apache-2.0
// Disks that are full or fail, and processes that are killed. This program's own pwrite(), pread() and fdatasync()
// stand in front of the system's, so that the library needs no hooks.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "recall/archive.h"
#include "recall/archive_test_util.h"

namespace {

struct Faults {
  int64_t write_bytes = INT64_MAX;  // that can still be written; a write is cut short at them
  int write_errno = 0;              // of writes after that
  int sync_errno = 0, read_errno = 0, cut_errno = 0;
};
Faults g_faults;

int Fail(int number) {
  errno = number;
  return -1;
}

ssize_t Write(int fd, const void* bytes, size_t n, off_t at) {
  if (g_faults.write_bytes == 0) return Fail(g_faults.write_errno);
  n = std::min(n, static_cast<size_t>(g_faults.write_bytes));
  if (g_faults.write_bytes != INT64_MAX) g_faults.write_bytes -= static_cast<int64_t>(n);
  return syscall(SYS_pwrite64, fd, bytes, n, at);
}
ssize_t Read(int fd, void* bytes, size_t n, off_t at) {
  if (g_faults.read_errno != 0) return Fail(g_faults.read_errno);
  return syscall(SYS_pread64, fd, bytes, n, at);
}

}  // namespace

extern "C" {
ssize_t pwrite(int fd, const void* bytes, size_t n, off_t at) { return Write(fd, bytes, n, at); }
ssize_t pwrite64(int fd, const void* bytes, size_t n, off_t at) { return Write(fd, bytes, n, at); }
ssize_t pread(int fd, void* bytes, size_t n, off_t at) { return Read(fd, bytes, n, at); }
ssize_t pread64(int fd, void* bytes, size_t n, off_t at) { return Read(fd, bytes, n, at); }
int fdatasync(int fd) {
  return g_faults.sync_errno != 0 ? Fail(g_faults.sync_errno) : static_cast<int>(syscall(SYS_fdatasync, fd));
}
int ftruncate(int fd, off_t n) noexcept {
  return g_faults.cut_errno != 0 ? Fail(g_faults.cut_errno) : static_cast<int>(syscall(SYS_ftruncate, fd, n));
}
}

namespace weir {
namespace {

class ArchiveFaultsTest : public ArchiveTest {
 protected:
  void SetUp() override {
    g_faults = {};
    ArchiveTest::SetUp();
  }
  void TearDown() override {
    g_faults = {};
    ArchiveTest::TearDown();
  }
  // Appends until the archive is off, flushing now and then. Returns the number of blocks that it took.
  static int64_t FillUntilOff(Archive& archive) {
    int64_t n = 0, n_flushed = 0;
    for (; archive.state().ok(); ++n) {
      EXPECT_LT(n, 100000);
      Fill(archive, n, n + 1);
      if (n % 37 == 36) archive.Flush();
      if (archive.state().ok() && n % 37 == 36) n_flushed = n + 1;
    }
    EXPECT_LE(archive.seq_end(), 32 * n);
    EXPECT_GE(archive.seq_end(), 32 * n_flushed);
    n_flushed_ = n_flushed;
    return n;
  }
  static inline int64_t n_flushed_ = 0;
};

TEST_F(ArchiveFaultsTest, AFullOrFailingDisk) {
  struct Case {
    int64_t bytes;
    int number;
    const char* what;
  };
  for (const char* name : {"a", ""}) {
    for (const bool cut_fails : {false, true}) {
      for (const Case& c : {Case{0, ENOSPC, "No space left on device"}, Case{50, ENOSPC, "No space left on device"},
                            Case{127, EDQUOT, "Disk quota exceeded"}, Case{128, ENOSPC, "No space left on device"},
                            Case{9973, EIO, "Input/output error"}, Case{262144, ENOSPC, "No space left on device"},
                            Case{700001, EIO, "Input/output error"}}) {
        const auto archive = Make(Options(name));
        g_faults.write_bytes = c.bytes;
        g_faults.write_errno = c.number;
        g_faults.cut_errno = cut_fails ? EIO : 0;
        FillUntilOff(*archive);
        EXPECT_EQ(archive->state().code(), StatusCode::kIo);
        EXPECT_EQ(archive->state().message().rfind("nothing more is kept for recall: cannot write ", 0), 0u);
        EXPECT_TRUE(archive->state().message().ends_with(c.what)) << archive->state().message();
        // The disk is well again, the archive stays off; all that it took is there.
        const int64_t n = archive->seq_end() / 32;
        g_faults = {};
        const std::string message = archive->state().message();
        Fill(*archive, n + 10, n + 60);
        archive->Flush();
        EXPECT_EQ(archive->state().message(), message);
        EXPECT_GE(archive->notes().n_not_kept, 50);
        EXPECT_EQ(All(*archive), Stream(0, n));
        EXPECT_EQ(archive->notes().n_damaged, 0);
        if (*name == '\0') continue;
        {
          auto fork = archive->Fork(Options("b").dir, ledger_);
          ASSERT_TRUE(fork.ok());
          EXPECT_EQ(All(**fork), Stream(0, n));
          EXPECT_TRUE((*fork)->Remove().ok());
        }
        // The next process finds what had been flushed.
        const int64_t n_flushed = n_flushed_;
        const_cast<std::unique_ptr<Archive>&>(archive).reset();
        const auto again = Open(options_);
        const std::vector<Stored> left = All(*again);
        EXPECT_GE(std::ssize(left), n_flushed);
        EXPECT_EQ(left, Stream(0, std::ssize(left)));
        EXPECT_EQ(again->notes().n_damaged, 0);
        Fill(*again, std::ssize(left), n + 100);
        EXPECT_TRUE(again->state().ok());
        EXPECT_EQ(All(*again), Stream(0, n + 100));
        EXPECT_TRUE(again->Remove().ok());
      }
    }
  }
}

TEST_F(ArchiveFaultsTest, ASyncThatFails) {
  auto archive = Make(options_);
  Fill(*archive, 0, 100);
  g_faults.sync_errno = EIO;
  const ArchivePoint point = archive->SavePoint();
  EXPECT_EQ(point.seq_end, 3200);
  EXPECT_TRUE(archive->state().message().ends_with("Input/output error"));
  EXPECT_EQ(All(*archive), Stream(0, 100));
  EXPECT_TRUE(archive->Remove().ok());
  archive = Make(options_);
  FillUntilOff(*archive);  // when a segment is closed
  EXPECT_GT(archive->seq_end(), 32 * 1000);
  EXPECT_EQ(All(*archive), Stream(0, archive->seq_end() / 32));
}

TEST_F(ArchiveFaultsTest, ReadsThatFail) {
  const auto archive = Make(options_);
  Fill(*archive, 0, 3000);
  archive->Flush();
  g_faults.read_errno = EIO;
  int n = 0;
  const Status status = archive->Scan(archive->begin(), [&](BlockPlace, const Block&) { return ++n > 0; });
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_TRUE(status.message().ends_with("Input/output error")) << status.message();
  EXPECT_EQ(n, 0);
  EXPECT_EQ(archive->notes().n_lost_segments, archive->n_segments());
  EXPECT_TRUE(archive->state().ok());
  g_faults.read_errno = 0;
  EXPECT_EQ(All(*archive), Stream(0, 3000));
  EXPECT_EQ(archive->notes().Text(), "");
}

TEST_F(ArchiveFaultsTest, ASegmentThatCannotBeReadIsPassedOver) {
  const auto archive = Make(options_);
  Fill(*archive, 0, 6000);
  const std::string path = PathOf(1);
  std::filesystem::rename(path, path + "x");
  const std::vector<Stored> left = All(*archive);
  EXPECT_GT(left.size(), 3000u);
  EXPECT_EQ(left, Stream(6000 - std::ssize(left), 6000));
  EXPECT_EQ(archive->notes().n_lost_segments, 1);
  std::filesystem::rename(path + "x", path);
  std::filesystem::resize_file(path, 5000);  // under the reader's feet
  const std::vector<Stored> most = All(*archive);
  EXPECT_GE(most.size(), left.size());
  EXPECT_EQ(archive->notes().n_lost_segments, 1);
}

TEST_F(ArchiveFaultsTest, ALimitOnTheSizeOfFiles) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {200001, 200001};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto archive = Make(options_);
    FillUntilOff(*archive);
    const bool good = archive->state().message().ends_with("File too large") &&
                      All(*archive) == Stream(0, archive->seq_end() / 32) && !HasFailure();
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  const auto archive = Open(options_);
  const std::vector<Stored> left = All(*archive);
  EXPECT_GT(left.size(), 500u);
  EXPECT_EQ(left, Stream(0, std::ssize(left)));
}

TEST_F(ArchiveFaultsTest, AFileSystemThatIsFull) {
  const std::string mounted = folder_ + "/small";
  std::filesystem::create_directory(mounted);
  if (mount("none", mounted.c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "only root may mount";
  {
    auto archive = Make(Options("small/a"));
    FillUntilOff(*archive);
    EXPECT_TRUE(archive->state().message().ends_with("No space left on device")) << archive->state().message();
    EXPECT_EQ(All(*archive), Stream(0, archive->seq_end() / 32));
    EXPECT_GT(archive->seq_end(), 32 * 1000);
    archive.reset();
    archive = Open(Options("small/a"));
    const std::vector<Stored> left = All(*archive);
    EXPECT_GE(std::ssize(left), n_flushed_);
    EXPECT_EQ(left, Stream(0, std::ssize(left)));
    EXPECT_TRUE(archive->Remove().ok());
  }
  EXPECT_EQ(umount(mounted.c_str()), 0);
}

// WEIR_KILLS: how often, 20 unless set.
TEST_F(ArchiveFaultsTest, AKillLosesNothingThatWasAcknowledged) {
  const char* const kills = std::getenv("WEIR_KILLS");
  const int n_kills = kills == nullptr ? 20 : std::atoi(kills);
  options_.disk_bytes = 1 << 20;
  Rng rng(9);
  int64_t n_acknowledged = 0, n_cut = 0, n_max = 0;
  for (int round = 0; round < n_kills; ++round) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto archive =
          Archive::Exists(options_.dir) ? Archive::Open(options_, ledger_) : Archive::Make(options_, ledger_);
      if (!archive.ok()) _exit(1);
      Rng mine(static_cast<uint64_t>(round));
      for (int64_t i = (*archive)->seq_end() / 32;;) {
        for (auto n = mine.Below(mine.Below(10) == 0 ? 800 : 20) + 1; n > 0; --n, ++i) {
          const Stored stored = Nth(i);
          if (!(*archive)->Append(View(stored)).ok()) _exit(2);
        }
        (*archive)->Flush();
        if (!(*archive)->state().ok() || write(ends[1], &i, sizeof(i)) != sizeof(i)) _exit(3);
      }
    }
    close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(25000)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended with " << WEXITSTATUS(status) << " in round " << round;
    for (int64_t i = 0; read(ends[0], &i, sizeof(i)) == sizeof(i);) n_acknowledged = i;
    close(ends[0]);
    if (!Archive::Exists(options_.dir)) {
      std::filesystem::remove_all(options_.dir);
      ASSERT_EQ(n_acknowledged, 0);
      continue;
    }
    const auto archive = Open(options_);
    ASSERT_NE(archive, nullptr);
    const std::vector<Stored> left = All(*archive);
    const int64_t first = archive->seq_begin() / 32, n = archive->seq_end() / 32;
    ASSERT_EQ(left, Stream(first, n)) << round;
    ASSERT_GE(n, n_acknowledged) << round;
    ASSERT_TRUE(first == 0 || n - first > 2000);
    ASSERT_EQ(archive->notes().n_damaged + archive->notes().n_lost_segments, 0) << archive->notes().Text();
    n_cut += archive->notes().cut_bytes > 0;
    n_max = std::max(n_max, n);
    n_acknowledged = n;
  }
  RecordProperty("cut", static_cast<int>(n_cut));
  printf("%d kills, %ld blocks, an unfinished end %ld times\n", n_kills, static_cast<long>(n_max),
         static_cast<long>(n_cut));
  EXPECT_GT(n_max, 0);
}

}  // namespace
}  // namespace weir
