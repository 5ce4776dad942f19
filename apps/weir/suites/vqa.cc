// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval vqa: questions about pictures, each by itself.
#include <memory>

#include "suites/suite.h"
#include "suites/vqa_flags.h"

namespace weir::app {
namespace {

Action AddVqa(CLI::App& sub) {
  auto flags = std::make_shared<VqaFlags>();
  AddVqaFlags(sub, flags.get(), "full");
  AddPruneFlag(sub, &flags->run);
  return [=] { return RunPictureExam(flags->run, MakeVqaExam("vqa", *flags)); };
}

}  // namespace

extern const SuiteInfo kVqa;
const SuiteInfo kVqa = {
    .name = "vqa", .summary = "questions about the pictures of a folder, each on its own", .add = AddVqa};

}  // namespace weir::app
