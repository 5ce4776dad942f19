// SPDX-License-Identifier: Apache-2.0
#include "suites/vqa_flags.h"

#include <fmt/core.h>

#include "eval/answer_metrics.h"

namespace weir::app {

MakePictureExam MakeVqaExam(const char* suite, const VqaFlags& flags) {
  return [suite, &flags](const PictureExamInput& input) -> Result<PictureExam> {
    PictureSuiteOptions options = flags.options;
    options.n = flags.run.eval.n;
    for (const std::string& metric : options.metrics) WEIR_RETURN_IF_ERROR(CheckAnswerMetric(metric));
    PictureExam exam;
    exam.suite = suite;
    exam.longest_tokens = input.longest_tokens(input.questions, true);
    exam.settings = fmt::format("n={} decode={}", options.n, flags.run.viewer.n_decode);
    for (const std::string& metric : options.metrics) exam.settings += " " + metric;
    exam.run = [&input, options](Viewer& viewer, const SuiteHooks& hooks) {
      return RunPictureSuite(viewer, input.questions, options, hooks);
    };
    return exam;
  };
}

void AddVqaFlags(CLI::App& sub, VqaFlags* flags, const std::string& policies) {
  AddPictureRunFlags(sub, &flags->run, policies);
  sub.add_option("--n", flags->run.eval.n, "number of questions, from the first on; 0 = all")
      ->check(Between(0, 1 << 30))
      ->capture_default_str();
  sub.add_option("--metric", flags->options.metrics,
                 "exact, contains, vqa (VQA accuracy), anls, f1, rouge_l, cider (0 to 10); one row each")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("NAME,...");
}

}  // namespace weir::app
