// SPDX-License-Identifier: Apache-2.0
// The real program on a disk that fails at every n-th call of one kind: it goes on or refuses in one line, and what it
// recalls was said.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/process.h"
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

// While it lives, programs that are started have such a disk.
class FailingDisk {
 public:
  FailingDisk(const std::string& dir, const std::string& log, const std::string& call, int nth, int number) {
    Set("WEIR_FAULT_DIR", dir);
    Set("WEIR_FAULT_LOG", log);
    Set("WEIR_FAULT_CALL", call);
    Set("WEIR_FAULT_NTH", std::to_string(nth));
    Set("WEIR_FAULT_ERRNO", std::to_string(number));
    Set("LD_PRELOAD", WEIR_DISK_FAULTS);
  }
  ~FailingDisk() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }

 private:
  void Set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
  std::vector<std::string> names_;
};

class DiskFaultsTest : public ::testing::Test {
 protected:
  static std::vector<std::string> Chat(const TempDir& temp) {
    return {"chat",
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
            "words:gate=0,passages=1",
            "--recall-dir",
            temp.File("archive"),
            "--recall-disk",
            "1MiB",
            "--recall-tokens",
            "120",
            "--session",
            temp.File("talk.weir")};
  }
  // Rounds that fill the archive, a question, and the same again from the saved session; then the archive as it is.
  // Returns how many calls failed.
  static uintmax_t Play(const std::string& call, int nth, int number) {
    const TempDir temp;
    fs::create_directories(temp.File("archive"));
    int64_t n_said = 0;
    {
      const FailingDisk disk(temp.File("archive"), temp.File("log"), call, nth, number);
      for (int i = 0; i < 2; ++i) {
        RunOptions options;
        options.input =
            kFact + "\n" + Pages(60) + "\nWhere is the harpoon?\n" + Pages(20) + "\n/reset\n" + kFact + "\n";
        options.timeout_s = 60;
        const RunResult run = RunWeir(Chat(temp), options);
        EXPECT_FALSE(run.timed_out);
        EXPECT_EQ(run.signal, 0) << run.err;
        // An archive that cannot be made or opened ends the program before anything is read, with one line.
        if (run.code != 0) {
          EXPECT_TRUE(run.code == 1 || run.code == 2) << run.err;
          EXPECT_NE(run.err.find("weir: error: "), std::string::npos) << run.err;
          EXPECT_NE(run.err.find(temp.File("archive")), std::string::npos) << run.err;
        }
        for (const std::string& line : Lines(run.err)) {
          n_said += line.starts_with("weir: ") || line.find("cannot ") != line.npos;
          // What is recalled was said, and not something else.
          if (line.rfind("recall   token", 0) != 0) continue;
          const std::string text = line.substr(line.find("): ") + 3);
          EXPECT_TRUE(text.find("harpoon") != text.npos || text.find("the man") != text.npos ||
                      text.find("and the sea") != text.npos)
              << line;
        }
      }
    }
    std::error_code none;
    const uintmax_t n_failed = fs::file_size(temp.File("log"), none);
    if (none) return 0;
    // A write that fails is told; one that came short is completed.
    if (number != 0 && call == "pwrite") EXPECT_GT(n_said, 0) << call << " " << nth << " " << number;
    // What is left is an archive that can be read, or none.
    if (fs::exists(temp.File("archive/weir-archive"))) {
      const RunResult found = RunWeir({"recall", temp.File("archive"), "harpoon"});
      EXPECT_EQ(found.signal, 0);
      if (found.code == 0 && !found.out.empty()) EXPECT_NE(found.out.find("harpoon"), std::string::npos) << found.out;
    }
    return n_failed;
  }
};

TEST_F(DiskFaultsTest, EveryNthCall) {
  struct {
    const char* call;
    std::vector<int> numbers;
  } const kinds[] = {{"pwrite", {ENOSPC, EIO, 0}},
                     {"pread", {EIO, 0}},
                     {"sync", {EIO}},
                     {"ftruncate", {EIO}},
                     {"rename", {EIO, ENOSPC}}};
  for (const auto& [call, numbers] : kinds) {
    uintmax_t n_failed = 0;
    for (const int number : numbers) {
      for (const int nth : {1, 2, 3, 4, 5, 7, 11, 23}) {
        SCOPED_TRACE(std::string(call) + " " + std::to_string(nth) + " " + std::to_string(number));
        n_failed += Play(call, nth, number);
      }
    }
    // Files are renamed only where a copy shares them, and cut only where a session goes back.
    const std::string name = call;
    if (name != "rename" && name != "ftruncate") EXPECT_GT(n_failed, 0u) << call;
  }
}

}  // namespace
}  // namespace weir::testing
