// SPDX-License-Identifier: Apache-2.0
// A fixture for what the program must refuse: one line that says what was wrong, exit code 2, nothing written, never a
// crash.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/edited_model.h"
#include "cli/process.h"

namespace weir::testing {

using Arguments = std::vector<std::string>;

inline Arguments Join(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline bool StartsWith(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

class RefusalTest : public ::testing::Test {
 protected:
  RunResult Run(const Arguments& arguments, RunOptions options = {}) {
    options.directory = dir_.path();
    return RunWeir(arguments, options);
  }

  // The error line holds each of `words`. With `before`, other lines (the configuration) may stand before it.
  void ExpectError(const Arguments& arguments, const Arguments& words, bool before = false,
                   const RunOptions& options = {}) {
    const Arguments had = dir_.Names();
    const RunResult run = Run(arguments, options);
    SCOPED_TRACE("weir " + ::testing::PrintToString(arguments));
    EXPECT_EQ(run.code, 2) << "signal " << run.signal << ", timed out " << run.timed_out << "\n" << run.err;
    EXPECT_EQ(run.out, "");
    const Arguments lines = Lines(run.err);
    ASSERT_FALSE(lines.empty());
    if (!before) {
      EXPECT_EQ(lines.size(), 1u) << run.err;
    }
    const std::string& last = lines.back();
    EXPECT_TRUE(StartsWith(last, "weir: error: ")) << run.err;
    for (const std::string& word : words)
      EXPECT_NE(last.find(word), std::string::npos) << "no \"" << word << "\" in: " << last;
    EXPECT_EQ(dir_.Names(), had);
  }

  Arguments RunWith(const std::string& model, const Arguments& more = {}) {
    Arguments all = {"run", "-m", model, "-p", "the", "-n", "4", "--temp", "0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Arguments RunTiny(const Arguments& more = {}) { return RunWith(ModelPath("llama"), more); }

  void ExpectBadModel(const std::string& bytes, const Arguments& words) {
    ExpectError(RunWith(dir_.Write("bad.gguf", bytes)), words);
  }

  TempDir dir_;
};

}  // namespace weir::testing
