// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval longmemeval: questions about a user's chats over months, and whether their evidence is held.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "eval/longmemeval.h"
#include "suites/suite.h"
#include "suites/text_exam.h"

namespace weir::app {
namespace {

// The file itself, or that of a folder: the one with distracting sessions first.
Result<std::string> FileOf(const std::string& data) {
  std::error_code error;
  if (!std::filesystem::is_directory(data, error)) return data;
  for (const char* name : {"longmemeval_s_cleaned.json", "longmemeval_s.json", "longmemeval_oracle.json"}) {
    if (const std::string path = data + "/" + name; std::filesystem::exists(path, error)) return path;
  }
  return NotFound("{} has neither longmemeval_s_cleaned.json, longmemeval_s.json nor longmemeval_oracle.json", data);
}

Result<TextExam> MakeLongMemEvalExam(const TextExamFlags& flags, const LoadedModel& model) {
  constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
  WEIR_ASSIGN_OR_RETURN(const std::string path, FileOf(flags.data));
  WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  auto tasks = ParseLongMemEval(text);
  if (!tasks.ok()) return Corrupt("{}: {}", path, tasks.status().message());
  return MeasureTextExam(std::move(*tasks), flags, model);
}

Action AddLongMemEval(CLI::App& sub) {
  auto flags = std::make_shared<TextExamFlags>();
  flags->eval.prompt = "chat";
  AddTextExamFlags(
      sub, flags.get(), 0,
      "LongMemEval's folder (longmemeval_s_cleaned.json, longmemeval_s.json or longmemeval_oracle.json), or "
      "such a file");
  return [=] {
    return RunTextExam("longmemeval", *flags,
                       [&](const LoadedModel& model) { return MakeLongMemEvalExam(*flags, model); });
  };
}

}  // namespace

extern const SuiteInfo kLongmemeval;
const SuiteInfo kLongmemeval = {.name = "longmemeval",
                                .summary = "questions about months of chats, and whether their evidence is held",
                                .add = AddLongMemEval};

}  // namespace weir::app
