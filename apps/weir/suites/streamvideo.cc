// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval streamvideo: questions about a stream's beginning at growing distances.
#include <memory>

#include "suites/suite.h"
#include "suites/video_flags.h"

namespace weir::app {
namespace {

Action AddStreamVideo(CLI::App& sub) {
  auto flags = std::make_shared<VideoFlags>();
  AddVideoFlags(sub, flags.get());
  sub.add_option("--first", flags->options.first_minutes, "minutes of the stream that count as its beginning")
      ->check(CLI::Range(1e-6, 1e9).description(""))
      ->capture_default_str()
      ->type_name("MINUTES");
  sub.add_option("--ages", flags->options.ages, "minutes from the clip to its question at which a new row starts")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("MINUTES,...");
  return [=] { return RunPictureExam(flags->run, MakeVideoExam("streamvideo", *flags, 0, RunStreamVideo)); };
}

}  // namespace

extern const SuiteInfo kStreamvideo;
const SuiteInfo kStreamvideo = {.name = "streamvideo",
                                .summary = "questions about the first minute, asked while the pot turns over",
                                .add = AddStreamVideo};

}  // namespace weir::app
