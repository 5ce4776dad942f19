// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval infinitebench: InfiniteBench's tasks that are scored by comparing.
#include <memory>

#include "eval/infinitebench.h"
#include "suites/suite.h"
#include "suites/text_exam.h"

namespace weir::app {
namespace {

Action AddInfiniteBench(CLI::App& sub) {
  auto flags = std::make_shared<TextExamFlags>();
  AddTextExamFlags(sub, flags.get(), 0, "InfiniteBench's folder: passkey.jsonl, kv_retrieval.jsonl ...");
  return [=] {
    return RunTextExam("infinitebench", *flags, [&](const LoadedModel& model) -> Result<TextExam> {
      WEIR_ASSIGN_OR_RETURN(std::vector<TextTask> tasks,
                            ReadTaskFiles(*flags, "InfiniteBench", InfiniteBenchTasks(), ParseInfiniteBench));
      return MeasureTextExam(std::move(tasks), *flags, model);
    });
  };
}

}  // namespace

extern const SuiteInfo kInfinitebench;
const SuiteInfo kInfinitebench = {
    .name = "infinitebench", .summary = "questions about texts of 100,000 tokens and more", .add = AddInfiniteBench};

}  // namespace weir::app
