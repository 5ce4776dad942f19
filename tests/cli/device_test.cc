// SPDX-License-Identifier: Apache-2.0
// Which device runs, and what is said about it.
#include <cstdlib>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

class DeviceTest : public RefusalTest {
 protected:
  RunResult With(const Arguments& more) {
    Arguments all = {"run",    "-m", ModelPath("llama"), "-p",    "the", "-n", "3",
                     "--temp", "0",  "--ignore-eos",     "--pot", "32"};
    all.insert(all.end(), more.begin(), more.end());
    return Run(all);
  }
  // Whether this build and machine have a device: `auto` says when not.
  bool HasDevice() { return With({"--device", "auto"}).err.find("running on the CPU") == std::string::npos; }
};

TEST_F(DeviceTest, AutoWithoutADeviceIsTheCpuAndSaysSoOnce) {
  if (HasDevice()) GTEST_SKIP() << "this machine has a CUDA device";
  const RunResult cpu = With({}), automatic = With({"--device", "auto"}), layers = With({"-ngl", "99"});
  EXPECT_EQ(cpu.code, 0) << cpu.err;
  EXPECT_EQ(cpu.err.find("CUDA"), std::string::npos) << cpu.err;
  for (const RunResult& run : {automatic, layers}) {
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.out, cpu.out);
    const size_t at = run.err.find("running on the CPU");
    ASSERT_NE(at, std::string::npos) << run.err;
    EXPECT_EQ(run.err.find("running on the CPU", at + 1), std::string::npos) << run.err;
  }
}

TEST_F(DeviceTest, CudaWithoutADeviceIsOneClearError) {
  if (HasDevice()) GTEST_SKIP() << "this machine has a CUDA device";
  for (const Arguments& more : {Arguments{"--device", "cuda"}, Arguments{"--device", "cuda", "-ngl", "99"}}) {
    const RunResult run = With(more);
    EXPECT_EQ(run.code, 2);
    EXPECT_EQ(run.out, "");
    const std::vector<std::string> lines = Lines(run.err);
    ASSERT_EQ(lines.size(), 1u) << run.err;
    EXPECT_NE(lines[0].find("CUDA"), std::string::npos) << run.err;
  }
}

TEST_F(DeviceTest, NoLayersIsTheCpu) {
  const RunResult run = With({"--device", "auto", "-ngl", "0"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err.find("CUDA"), std::string::npos) << run.err;
}

TEST_F(DeviceTest, WhatCannotBeHonouredIsRefused) {
  for (const Arguments& more :
       {Arguments{"--device", "cpu", "-ngl", "99"}, Arguments{"--device", "cuda", "-ngl", "0"},
        Arguments{"--device", "tpu"}, Arguments{"--device", ""}, Arguments{"-ngl", "-3"}, Arguments{"-ngl", "1"}}) {
    const RunResult run = With(more);
    EXPECT_NE(run.code, 0) << ::testing::PrintToString(more);
    EXPECT_EQ(run.out, "");
    EXPECT_FALSE(run.err.empty());
  }
}

TEST_F(DeviceTest, GraphsAreAskedForOrNot) {
  setenv("WEIR_CUDA_GRAPH", "maybe", 1);
  const RunResult wrong = With({});
  setenv("WEIR_CUDA_GRAPH", "0", 1);
  const RunResult without = With({"--device", "auto"});
  unsetenv("WEIR_CUDA_GRAPH");
  const RunResult with = With({"--device", "auto"});
  EXPECT_NE(wrong.code, 0);
  EXPECT_NE(wrong.err.find("WEIR_CUDA_GRAPH"), std::string::npos) << wrong.err;
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_EQ(without.out, with.out);
}

}  // namespace
}  // namespace weir::testing
