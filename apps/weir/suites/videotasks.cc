// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval videotasks: the tasks of published data sets along videos, asked when their time has come.
#include <memory>

#include "suites/suite.h"
#include "suites/video_flags.h"

namespace weir::app {
namespace {

Action AddVideoTasks(CLI::App& sub) {
  auto flags = std::make_shared<VideoFlags>();
  AddVideoFlags(sub, flags.get());
  return [=] { return RunPictureExam(flags->run, MakeVideoExam("videotasks", *flags, 0, RunVideoTasks)); };
}

}  // namespace

extern const SuiteInfo kVideotasks;
const SuiteInfo kVideotasks = {.name = "videotasks",
                               .summary = "OVO-Bench, StreamingBench and others along videos, a row for each task",
                               .add = AddVideoTasks};

}  // namespace weir::app
