// SPDX-License-Identifier: Apache-2.0
// Independent questions about pictures: the session is reset, the pictures are shown, the question is asked.
//
// The protocol of the papers on visual tokens (VQA, DocVQA, TextVQA, captions): one sample, one prompt, greedy. In
// addition to the scores every cell has the cost in keys and values: the share stored, and the share that a token read.
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
  bool by_kind = true;                           // also a cell for every kind, if there are several
};

// A question without pictures is about those shown before it. One cell per metric (label `kind`: all), then one per
// kind and metric, reported at the end, also if the run is stopped. kUnsupported for an unknown metric,
// kInvalidArgument for none.
Status RunPictureSuite(Viewer& viewer, std::span<const PictureQuestion> questions, const PictureSuiteOptions& options,
                       const SuiteHooks& hooks);

}  // namespace weir
