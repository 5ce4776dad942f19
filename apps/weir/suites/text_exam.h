// SPDX-License-Identifier: Apache-2.0
// Shared by the suites of published tasks of text (eval/text_tasks.h): their flags, the baseline beside them, --resume.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "eval/text_tasks.h"
#include "suites/exam.h"

namespace weir::app {

struct TextExamFlags {
  EvalFlags eval;
  std::string data;                // a folder or file of questions
  std::string resume;              // rows of an earlier run
  std::vector<std::string> tasks;  // only these; empty: all
  int32_t n_answer = 0;            // shortens answers; 0: as published
  bool truncation = true;
  int limit = 0;  // samples of each task; 0: all
};

// Flags of the model and the pot, --limit with its default, --task, --prompt, --answer, --resume, --no-truncation. With
// `data`, -d,--data is required and described by it.
void AddTextExamFlags(CLI::App& sub, TextExamFlags* flags, int limit, const char* data = nullptr);

// Whether a task was asked for.
bool Wants(const TextExamFlags& flags, const std::string& task);

struct TextExam {
  std::vector<TextTask> tasks;
  int64_t longest_tokens = 0;  // of a prompt, answer included
  int64_t read_tokens = 0;     // of all of them, about
};
// Tasks that have a file NAME.jsonl each in the folder of `data`: those asked for, or those whose files are there.
// Errors name the file; kNotFound where there is none.
Result<std::vector<TextTask>> ReadTaskFiles(const TextExamFlags& flags, const char* set,
                                            const std::vector<std::string>& names,
                                            Result<TextTask> (*parse)(const std::string& name, std::string_view text));
// Keeps the wanted tasks and counts their tokens.
Result<TextExam> MeasureTextExam(std::vector<TextTask> tasks, const TextExamFlags& flags, const LoadedModel& model);
// As RunExam().
Status RunTextExam(const char* suite, const TextExamFlags& flags,
                   const std::function<Result<TextExam>(const LoadedModel&)>& make);

}  // namespace weir::app
