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
    const ViewerOptions& viewer = flags.run.viewer;
    exam.settings = fmt::format("n={} decode={}", options.n, viewer.n_decode);
    if (viewer.n_beams > 1) exam.settings += fmt::format(" beams={}^{:g}", viewer.n_beams, viewer.length_penalty);
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
  sub.add_option("--beams", flags->run.viewer.n_beams,
                 "beams of the search for an answer; 1 = the likeliest token each time")
      ->check(Between(1, 64))
      ->capture_default_str();
  sub.add_option("--length-penalty", flags->run.viewer.length_penalty,
                 "beams: the power of an answer's length that its log probability is divided by")
      ->check(CLI::Range(-8.0, 8.0).description(""))
      ->capture_default_str();
  sub.add_option("--metric", flags->options.metrics,
                 "exact, contains, vqa (VQA accuracy), anls, f1, rouge_l, cider (0 to 10); one row each")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("NAME,...");
}

}  // namespace weir::app
