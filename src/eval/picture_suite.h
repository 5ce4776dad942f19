// SPDX-License-Identifier: Apache-2.0
// Questions about pictures, each by itself: the session is emptied, the pictures are shown, the question is asked.
//
// The protocol of the papers on visual tokens (VQA, DocVQA, TextVQA, captions): one sample, one prompt, greedy. Beside
// the scores every cell has what the answers cost in keys and values: what was stored of them, what a token read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "eval/picture_questions.h"
#include "eval/suite.h"
#include "eval/viewer.h"

namespace weir {

struct PictureSuiteOptions {
  std::vector<std::string> metrics = {"exact"};  // of eval/answer_metrics.h
  int32_t n = 0;                                 // questions; 0: all
  bool by_kind = true;                           // also a cell for every kind, where there are several
};

// A question that shows nothing is asked about what was shown before it. One cell a metric (label `kind`: all), then
// one for each kind and metric, at the end, also of a run that is stopped. kUnsupported for an unknown metric,
// kInvalidArgument for none.
Status RunPictureSuite(Viewer& viewer, std::span<const PictureQuestion> questions, const PictureSuiteOptions& options,
                       const SuiteHooks& hooks);

}  // namespace weir
