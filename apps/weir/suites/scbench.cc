// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval scbench: SCBench's tasks that are scored by comparing: several questions about one context.
#include <memory>

#include "eval/scbench.h"
#include "suites/suite.h"
#include "suites/text_exam.h"

namespace weir::app {
namespace {

Action AddScBench(CLI::App& sub) {
  auto flags = std::make_shared<TextExamFlags>();
  AddTextExamFlags(sub, flags.get(), 0, "SCBench's folder: scbench_kv.jsonl, scbench_choice_eng.jsonl ...");
  return [=] {
    return RunTextExam("scbench", *flags, [&](const LoadedModel& model) -> Result<TextExam> {
      WEIR_ASSIGN_OR_RETURN(std::vector<TextTask> tasks,
                            ReadTaskFiles(*flags, "SCBench", ScBenchTasks(), ParseScBench));
      return MeasureTextExam(std::move(tasks), *flags, model);
    });
  };
}

}  // namespace

extern const SuiteInfo kScbench;
const SuiteInfo kScbench = {
    .name = "scbench", .summary = "several questions about one long context", .add = AddScBench};

}  // namespace weir::app
