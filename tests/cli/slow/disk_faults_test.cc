// SPDX-License-Identifier: Apache-2.0
// The real program on a disk that fails at every n-th call of one kind: it goes on or refuses in one line, and what it
// recalls was said.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/process.h"
#include "support/failing_disk.h"
#include "support/golden.h"

namespace weir::testing {
namespace {

namespace fs = std::filesystem;

const std::string kFact = "The harpoon lay in the attic.";

std::string Pages(int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += "the man and the sea, ";
  return out;
}

class DiskFaultsTest : public ::testing::Test {
 protected:
  static std::vector<std::string> With(const std::string& command, const std::string& recall, const TempDir& temp) {
    return {command,
            "-m",
            GoldenDir() + "llama.gguf",
            "-n",
            "4",
            "--temp",
            "0",
            "--ignore-eos",
            "--pot",
            "96",
            "--policy",
            "streaming_llm",
            "--recall",
            recall,
            "--recall-dir",
            temp.File("archive"),
            "--recall-disk",
            recall == "words:gate=0,passages=1" ? "1MiB" : "16MiB",
            "--recall-tokens",
            "120"};
  }
  static std::vector<std::string> Chat(const std::string& recall, const TempDir& temp) {
    std::vector<std::string> out = With("chat", recall, temp);
    out.insert(out.end(), {"--session", temp.File("talk.weir")});
    return out;
  }
  static std::vector<std::string> Read(const std::string& recall, const TempDir& temp) {
    std::vector<std::string> out = With("read", recall, temp);
    out.insert(out.end(), {temp.Write("book.txt", kFact + " " + Pages(300)), "--ask", "Where is the harpoon?"});
    return out;
  }
  static uintmax_t NumberOfFaults(const TempDir& temp) {
    std::error_code none;
    const uintmax_t n = fs::file_size(temp.File("log"), none);
    return none ? 0 : n;
  }
  // What a program may say and recall on such a disk. Returns the number of its lines about it.
  static int64_t Check(const RunResult& run, const TempDir& temp) {
    EXPECT_FALSE(run.timed_out);
    EXPECT_EQ(run.signal, 0) << run.err;
    // An archive that cannot be made or opened ends the program before anything is read, with one line.
    if (run.code != 0) {
      EXPECT_TRUE(run.code == 1 || run.code == 2) << run.err;
      EXPECT_NE(run.err.find("weir: error: "), std::string::npos) << run.err;
      EXPECT_NE(run.err.find(temp.File("archive")), std::string::npos) << run.err;
    }
    int64_t n_said = 0;
    for (const std::string& line : Lines(run.err)) {
      n_said += line.starts_with("weir: ") || line.find("cannot ") != line.npos;
      // What is recalled was said, and not something else. Without a gate that may be the frame of a turn.
      if (line.rfind("recall   token", 0) != 0) continue;
      const std::string text = line.substr(line.find("): ") + 3);
      EXPECT_TRUE(text.find("harpoon") != text.npos || text.find("the man") != text.npos ||
                  text.find("and the sea") != text.npos || text == "user")
          << line;
    }
    return n_said;
  }
  // What is left is an archive that can be read, or none.
  static void CheckLeft(const TempDir& temp) {
    if (!fs::exists(temp.File("archive/weir-archive"))) return;
    const RunResult found = RunWeir({"recall", temp.File("archive"), "harpoon"});
    EXPECT_EQ(found.signal, 0);
    if (found.code == 0 && !found.out.empty()) EXPECT_NE(found.out.find("harpoon"), std::string::npos) << found.out;
  }

  // Rounds that fill the archive, a question, and the same again from the saved session; then the archive as it is.
  // Returns how many calls failed.
  static uintmax_t PlayChat(const std::string& recall, const DiskFault& fault) {
    const TempDir temp;
    fs::create_directories(temp.File("archive"));
    int64_t n_said = 0;
    {
      const FailingDisk disk(temp.File("archive"), temp.File("log"), fault);
      for (int i = 0; i < 2; ++i) {
        RunOptions options;
        options.input =
            kFact + "\n" + Pages(60) + "\nWhere is the harpoon?\n" + Pages(20) + "\n/reset\n" + kFact + "\n";
        options.timeout_s = 60;
        n_said += Check(RunWeir(Chat(recall, temp), options), temp);
      }
    }
    // A write that fails is told; one that came short is completed.
    const uintmax_t n_failed = NumberOfFaults(temp);
    if (n_failed > 0 && fault.number != 0 && fault.call != "pread") EXPECT_GT(n_said, 0);
    CheckLeft(temp);
    return n_failed;
  }
  static uintmax_t PlayRead(const std::string& recall, const DiskFault& fault) {
    const TempDir temp;
    fs::create_directories(temp.File("archive"));
    RunResult run;
    {
      const FailingDisk disk(temp.File("archive"), temp.File("log"), fault);
      run = RunWeir(Read(recall, temp));
    }
    const int64_t n_said = Check(run, temp);
    const uintmax_t n_failed = NumberOfFaults(temp);
    // A read that fails may cost nothing: what was not found by its keys and values is read again.
    if (n_failed > 0 && fault.number != 0 && fault.call != "pread") EXPECT_GT(n_said, 0) << run.err;
    // The answer is there, if the archive could be made.
    if (run.code == 0) EXPECT_FALSE(run.out.empty());
    CheckLeft(temp);
    return n_failed;
  }
};

struct Kind {
  const char* call;
  std::vector<int> numbers;
  bool must = true;  // some call of this kind concerns the archive
};

TEST_F(DiskFaultsTest, EveryNthCallOfAChat) {
  // Files are renamed only where a copy shares them, and cut only where a session goes back.
  const Kind kinds[] = {{"create", {ENOSPC}},    {"pwrite", {ENOSPC, EIO, 0}}, {"pread", {EIO, 0}},
                        {"sync", {EIO}},         {"ftruncate", {EIO}, false},  {"rename", {EIO, ENOSPC}, false},
                        {"unlink", {EIO}, false}};
  for (const char* const recall : {"words:gate=0,passages=1", "both:gate=0,passages=1,restore=kv"}) {
    for (const auto& [call, numbers, must] : kinds) {
      uintmax_t n_failed = 0;
      for (const int number : numbers) {
        for (const int nth : {1, 2, 3, 4, 5, 7, 11, 23}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", recall, call, nth, number));
          n_failed += PlayChat(recall, {call, nth, number});
        }
      }
      if (must) EXPECT_GT(n_failed, 0u) << call;
    }
  }
}

TEST_F(DiskFaultsTest, EveryNthCallOfAReading) {
  // A book of a few pages is in the archive's buffer.
  const Kind kinds[] = {
      {"create", {ENOSPC}}, {"pwrite", {ENOSPC, EIO, 0}}, {"pread", {EIO, 0}, false}, {"sync", {EIO}}};
  for (const char* const recall : {"words:gate=0,passages=1", "both:gate=0,passages=1,restore=kv"}) {
    for (const auto& [call, numbers, must] : kinds) {
      uintmax_t n_failed = 0;
      for (const int number : numbers) {
        for (const int nth : {1, 2, 3, 4, 5, 7, 11, 23, 61}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", recall, call, nth, number));
          n_failed += PlayRead(recall, {call, nth, number});
        }
      }
      if (must) EXPECT_GT(n_failed, 0u) << call;
    }
  }
}

// What is only written, or synced, when a chat ends.
TEST_F(DiskFaultsTest, TheVeryEndOfAChatIsTold) {
  for (const DiskFault& fault :
       {DiskFault{"sync", 1, EIO}, DiskFault{"pwrite", 2, ENOSPC}}) {  // 1: the folder's marker
    const TempDir temp;
    RunOptions options;
    options.input = "/file " + temp.Write("book.txt", Pages(20)) + "\n";
    const FailingDisk disk(temp.File("archive"), temp.File("log"), fault);
    const RunResult run = RunWeir(With("chat", "words", temp), options);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_GT(NumberOfFaults(temp), 0u);
    const size_t at = run.err.find("weir: warning: nothing more is kept for recall: cannot ");
    ASSERT_NE(at, std::string::npos) << fault.call << ": " << run.err;
    EXPECT_EQ(run.err.find("weir: warning: ", at + 1), std::string::npos) << run.err;
  }
}

// Keys and values take the most room: they may be off while words are kept.
TEST_F(DiskFaultsTest, KeysAndValuesThatAreNotKeptAreTold) {
  const TempDir temp;
  fs::create_directories(temp.File("archive"));
  const FailingDisk disk(temp.File("archive/kv"), temp.File("log"), {"pwrite", 4, ENOSPC});
  const RunResult run = RunWeir(Read("words:gate=0,passages=1,near=0,restore=kv", temp));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("weir: warning: no more keys and values are kept for recall: cannot "), std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("harpoon lay in the attic"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace weir::testing
