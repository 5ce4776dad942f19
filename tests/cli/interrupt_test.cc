// SPDX-License-Identifier: Apache-2.0
// Ctrl-C: what was read is answered from, what was written stays, and the exit code says 130.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/edited_model.h"
#include "cli/process.h"

namespace weir::testing {
namespace {

std::vector<std::string> Read(const std::vector<std::string>& more) {
  std::vector<std::string> all = {
      "read", "-", "-m",           ModelPath("llama"), "--pot", "64", "--ask", "Who is it about?",
      "-n",   "5", "--ignore-eos", "--temp",           "0"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(InterruptTest, AnEndlessReadAnswersFromWhatWasRead) {
  RunOptions options;
  options.input = "the man and the sea and the old boat; ";
  options.endless_input = true;
  options.interrupt_after_in_bytes = 400000;
  const RunResult run = RunWeir(Read({"-o", "json"}), options);
  EXPECT_EQ(run.code, 130) << run.err;
  const auto json = nlohmann::json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << run.out;
  EXPECT_GT(json["tokens_seen"], 1000);
  EXPECT_LE(json["tokens_kept"], 64);
  EXPECT_EQ(json["tokens_generated"], 5);
  EXPECT_NE(run.err.find("weir: stopped reading after "), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("weir: error"), std::string::npos) << run.err;

  const RunResult text = RunWeir(Read({}), options);
  EXPECT_EQ(text.code, 130) << text.err;
  EXPECT_GT(text.out.size(), 1u);
}

// No more input arrives, but the other side does not close the pipe.
TEST(InterruptTest, ASilentPipe) {
  RunOptions options;
  options.input = "the man and the sea";
  options.silent_end = true;
  options.interrupt_after_ms = 700;
  const RunResult run = RunWeir(Read({"-o", "json"}), options);
  EXPECT_EQ(run.code, 130) << run.err;
  const auto json = nlohmann::json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << run.err;
  EXPECT_EQ(json["tokens_generated"], 5);
}

// Nothing was read, so there is nothing to answer from.
TEST(InterruptTest, AnEmptySilentPipe) {
  RunOptions options;
  options.silent_end = true;
  options.interrupt_after_ms = 700;
  for (const auto& arguments : {Read({}), {"eval", "ppl", "-m", ModelPath("llama"), "-f", "-"}}) {
    const RunResult run = RunWeir(arguments, options);
    EXPECT_EQ(run.code, 130) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find("weir: stopped"), std::string::npos) << run.err;
  }
}

TEST(InterruptTest, GenerationKeepsTheTextSoFar) {
  RunOptions options;
  options.interrupt_after_out_bytes = 2000;
  const RunResult run = RunWeir({"run", "-m", ModelPath("llama"), "-p", "the man", "--ignore-eos", "-n", "100000000",
                                 "--pot", "64", "--temp", "0"},
                                options);
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_GE(run.out.size(), 2000u);
  EXPECT_EQ(run.out.back(), '\n');
  EXPECT_NE(run.err.find("weir: stopped"), std::string::npos) << run.err;
}

// In a conversation Ctrl-C ends only the answer.
TEST(InterruptTest, AChatGoesOn) {
  RunOptions options;
  options.input = "the man\n/memory\n";
  options.interrupt_after_out_bytes = 2000;
  const RunResult run =
      RunWeir({"chat", "-m", ModelPath("llama"), "--ignore-eos", "-n", "100000000", "--pot", "64"}, options);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_GE(run.out.size(), 2000u);
  EXPECT_NE(run.err.find(" kept, "), std::string::npos) << run.err;
}

TEST(InterruptTest, ATraceOfAStoppedAnswerIsWhole) {
  TempDir dir;
  RunOptions options;
  options.interrupt_after_out_bytes = 2000;
  const RunResult run = RunWeir({"run", "-m", ModelPath("llama"), "-p", "the man", "--ignore-eos", "-n", "100000000",
                                 "--pot", "64", "--trace", dir.File("trace.jsonl")},
                                options);
  EXPECT_EQ(run.code, 130) << run.err;
  ASSERT_EQ(dir.Names(), std::vector<std::string>{"trace.jsonl"});
  for (const std::string& line : Lines(FileBytes(dir.File("trace.jsonl")))) {
    ASSERT_TRUE(nlohmann::json::accept(line)) << line;
  }
}

}  // namespace
}  // namespace weir::testing
