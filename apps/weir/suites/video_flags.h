// SPDX-License-Identifier: Apache-2.0
// Shared by the suites with rounds along a video stream (videoqa, streamvideo): flags and the exam made from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "eval/video_suite.h"
#include "suites/picture_exam.h"

namespace weir::app {

struct VideoFlags {
  PictureEvalFlags run;
  VideoSuiteOptions options;
  std::string answers = "own";
  int32_t n_streams = 0;
  bool transcript = false;
};

// Flags of RunPictureExam() with frames and pruners, --streams, --answers and --transcript.
void AddVideoFlags(CLI::App& sub, VideoFlags* flags);

using RunVideoSuite = Status (*)(Viewer&, std::span<const PictureQuestion>, const VideoSuiteOptions&,
                                 const SuiteHooks&);
// `n_rounds` of each stream; 0: all. `flags` must outlive what is returned.
MakePictureExam MakeVideoExam(const char* suite, const VideoFlags& flags, int32_t n_rounds, RunVideoSuite run);

}  // namespace weir::app
