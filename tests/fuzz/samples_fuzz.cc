// SPDX-License-Identifier: Apache-2.0
// Any text as a file of samples: LongBench's, LongEval's lines, needles, and questions about pictures.
#include <cstdlib>
#include <string_view>

#include "eval/lines.h"
#include "eval/longbench.h"
#include "eval/needle.h"
#include "eval/picture_questions.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto samples = weir::ParseLongBench(text); samples.ok()) {
    for (const weir::LongBenchSample& sample : *samples) {
      if (sample.max_new_tokens < 1 || sample.max_new_tokens > 4096) std::abort();
    }
  }
  (void)weir::ParseLinesCases(text);
  if (const auto needles = weir::ParseNeedles(text); needles.ok()) {
    for (const weir::Needle& needle : *needles) {
      if (needle.needles.empty()) std::abort();
      const std::string hidden = weir::HideNeedles("One. Two. Three", needle.needles, 0.5);
      if (hidden.size() < needle.needles[0].size()) std::abort();
    }
  }
  if (const auto questions = weir::ParsePictureQuestions(text, "folder"); questions.ok()) {
    size_t n = 0;
    for (const auto stream : weir::SplitStreams(*questions)) n += stream.size();
    if (n != questions->size()) std::abort();
    for (const weir::PictureQuestion& question : *questions) {
      if (question.answers.empty()) std::abort();
      for (const std::string& picture : question.pictures) {
        if (!picture.starts_with("folder/") || (picture + "/").find("/../") != std::string::npos) std::abort();
      }
    }
  }
  return 0;
}
