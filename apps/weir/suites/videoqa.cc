// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval videoqa: rounds of clips and questions along one stream.
#include <algorithm>
#include <memory>

#include "suites/suite.h"
#include "suites/video_flags.h"

namespace weir::app {
namespace {

Action AddVideoQa(CLI::App& sub) {
  auto flags = std::make_shared<VideoFlags>();
  AddVideoFlags(sub, flags.get());
  sub.add_option("--rounds", flags->options.rounds, "report a row for the first N rounds of each stream")
      ->delimiter(',')
      ->check(Between(1, 1 << 30))
      ->capture_default_str();
  return [=] {
    const std::vector<int32_t>& rounds = flags->options.rounds;
    const int32_t most = rounds.empty() ? 0 : *std::max_element(rounds.begin(), rounds.end());
    return RunPictureExam(flags->run, MakeVideoExam("videoqa", *flags, most, RunVideoQa));
  };
}

}  // namespace

extern const SuiteInfo kVideoqa;
const SuiteInfo kVideoqa = {
    .name = "videoqa", .summary = "clip after clip, one question each, in one stream and one pot", .add = AddVideoQa};

}  // namespace weir::app
