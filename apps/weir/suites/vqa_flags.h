// SPDX-License-Identifier: Apache-2.0
// Shared by the suites of single questions about pictures (vqa, catp, avl): flags and the exam made from them.
#pragma once

#include <string>

#include "eval/picture_suite.h"
#include "suites/picture_exam.h"

namespace weir::app {

struct VqaFlags {
  PictureEvalFlags run;
  PictureSuiteOptions options;
};

// Flags of RunPictureExam(), --n and --metric. `policies`: the default of --policy.
void AddVqaFlags(CLI::App& sub, VqaFlags* flags, const std::string& policies);
// `flags` must outlive what is returned.
MakePictureExam MakeVqaExam(const char* suite, const VqaFlags& flags);

}  // namespace weir::app
