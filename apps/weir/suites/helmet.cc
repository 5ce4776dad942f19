// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval helmet: HELMET's data sets that are scored by an answer's words.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "eval/helmet.h"
#include "suites/suite.h"
#include "suites/text_exam.h"

namespace weir::app {
namespace {

constexpr struct {
  const char* folder;
  Result<TextTask> (*parse)(const std::string& name, std::string_view jsonl);
} kHelmetFolders[] = {{"json_kv", ParseHelmetKv}, {"kilt", ParseHelmetRag}};

Result<TextExam> MakeHelmetExam(const TextExamFlags& flags, const LoadedModel& model) {
  constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
  std::vector<TextTask> tasks;
  for (const auto& [folder, parse] : kHelmetFolders) {
    const std::filesystem::path path = std::filesystem::path(flags.data) / folder;
    std::error_code error;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      const std::string name = entry.path().stem().string();
      if (entry.path().extension() != ".jsonl" || name.find("-train-") != std::string::npos) continue;
      if (Wants(flags, name)) files.push_back(entry.path());
    }
    std::ranges::sort(files);
    for (const std::filesystem::path& file : files) {
      WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(file.string(), kMaxFileBytes));
      Result<TextTask> task = parse(file.stem().string(), text);
      if (!task.ok()) return Corrupt("{}: {}", file.string(), task.status().message());
      tasks.push_back(std::move(*task));
    }
  }
  if (tasks.empty()) return NotFound("{} has no such file in json_kv or kilt", flags.data);
  return MeasureTextExam(std::move(tasks), flags, model);
}

Action AddHelmet(CLI::App& sub) {
  auto flags = std::make_shared<TextExamFlags>();
  AddTextExamFlags(sub, flags.get(), 100, "HELMET's folder `data`, with json_kv and kilt");
  return [=] {
    return RunTextExam("helmet", *flags, [&](const LoadedModel& model) { return MakeHelmetExam(*flags, model); });
  };
}

}  // namespace

extern const SuiteInfo kHelmet;
const SuiteInfo kHelmet = {
    .name = "helmet", .summary = "HELMET's values by key and questions about passages", .add = AddHelmet};

}  // namespace weir::app
