// SPDX-License-Identifier: Apache-2.0
// --packed FOLDER: the second start maps what the first one packed, and answers are the same whatever is in the folder.
#include <cstdlib>
#include <filesystem>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

class PackedTest : public RefusalTest {
 protected:
  // The program's answer with the folder, which equals the one without.
  std::string RunPacked(const std::string& folder) {
    const RunResult run = Run(RunTiny({"--packed", folder})), want = Run(RunTiny());
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.out, want.out);
    return run.err;
  }
};

TEST_F(PackedTest, TheSecondStartMapsTheWeights) {
  const std::string folder = dir_.File("packed");
  EXPECT_EQ(RunPacked(folder).find(", mapped"), std::string::npos);
  EXPECT_NE(RunPacked(folder).find(", mapped"), std::string::npos);
  // Damaged: made anew.
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
  }
  EXPECT_EQ(RunPacked(folder).find(", mapped"), std::string::npos);
  EXPECT_NE(RunPacked(folder).find(", mapped"), std::string::npos);
}

TEST_F(PackedTest, TheFolderMayComeFromTheEnvironment) {
  const std::string folder = dir_.File("packed");
  setenv("WEIR_PACKED", folder.c_str(), 1);
  const RunResult first = Run(RunTiny()), second = Run(RunTiny());
  unsetenv("WEIR_PACKED");
  EXPECT_NE(first.err.find(", kept for the next start"), std::string::npos) << first.err;
  EXPECT_NE(second.err.find(", mapped"), std::string::npos) << second.err;
}

TEST_F(PackedTest, TheModelMayBeNamedInAnotherWay) {
  const std::string folder = dir_.File("packed"), link = dir_.File("link");
  RunPacked(folder);
  std::filesystem::create_directory_symlink(std::filesystem::path(ModelPath("llama")).parent_path(), link);
  const std::string name = std::filesystem::path(ModelPath("llama")).filename();
  const RunResult run = Run(RunWith(link + "/" + name, {"--packed", folder}));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find(", mapped"), std::string::npos) << run.err;
}

TEST_F(PackedTest, AFolderThatCannotBeMadeIsNotNeeded) {
  const std::string error = RunPacked(dir_.File("none/packed"));
  EXPECT_NE(error.find("cannot make the folder " + dir_.File("none/packed")), std::string::npos) << error;
}

}  // namespace
}  // namespace weir::testing
