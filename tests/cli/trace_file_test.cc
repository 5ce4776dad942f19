// SPDX-License-Identifier: Apache-2.0
// --trace: the file is complete or absent.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

class TraceTest : public RefusalTest {
 protected:
  Arguments Forgetful(const std::string& trace) {
    return {"run",   "-m", ModelPath("llama"), "-p", "the man", "-n", "200", "--ignore-eos", "--temp", "0",
            "--pot", "16", "--trace",          trace};
  }
};

TEST_F(TraceTest, CannotBeMade) {
  ExpectError(Forgetful(dir_.File("no/such/folder/trace.jsonl")), {"no/such/folder/trace.jsonl", "No such file"});
  ExpectError(Forgetful(dir_.path()), {"directory"});
  ExpectError(Forgetful(""), {"--trace"});
}

TEST_F(TraceTest, IsWrittenWholeAndReplacesTheOldOne) {
  const std::string path = dir_.Write("trace.jsonl", "old\n");
  const RunResult run = Run(Forgetful(path));
  EXPECT_EQ(run.code, 0) << run.err;
  const Arguments lines = Lines(FileBytes(path));
  ASSERT_GT(lines.size(), 30u);
  EXPECT_TRUE(StartsWith(lines[0], "{\"type\":\"trace\",\"version\":1")) << lines[0];
  EXPECT_TRUE(StartsWith(lines.back(), "{\"type\":\"end\"")) << lines.back();
  EXPECT_EQ(dir_.Names(), Arguments{"trace.jsonl"});
  EXPECT_EQ(Run(Forgetful("/dev/null")).code, 0);
  struct stat info {};
  ASSERT_EQ(stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode)) << "the trace replaced a device";
}

TEST_F(TraceTest, FullDevice) {
  struct stat info {};
  if (stat("/dev/full", &info) != 0 || !S_ISCHR(info.st_mode)) GTEST_SKIP() << "no /dev/full here";
  const RunResult run = Run(Forgetful("/dev/full"));
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(Lines(run.err).back().find("No space left"), std::string::npos) << run.err;
  ASSERT_EQ(stat("/dev/full", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode)) << "the trace replaced a device";
}

TEST_F(TraceTest, FullDisk) {
  TempDir disk;
  if (mount("weir-test", disk.path().c_str(), "tmpfs", 0, "size=8k") != 0)
    GTEST_SKIP() << "mounting a small disk needs root";
  const RunResult run = Run(Forgetful(disk.File("trace.jsonl")));
  const Arguments left = disk.Names();
  ASSERT_EQ(umount(disk.path().c_str()), 0);
  EXPECT_EQ(run.code, 2) << run.err;
  EXPECT_NE(Lines(run.err).back().find("weir: error: "), std::string::npos) << run.err;
  EXPECT_NE(Lines(run.err).back().find("No space left"), std::string::npos) << run.err;
  EXPECT_TRUE(left.empty()) << left[0];
}

}  // namespace
}  // namespace weir::testing
