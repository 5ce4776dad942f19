// SPDX-License-Identifier: Apache-2.0
// InfiniteBench (Zhang et al. 2024, arXiv 2402.13718): questions about texts of 100,000 tokens and more. Of its twelve
// tasks those that are scored by comparing: not the summary, the running sums and the Chinese book.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/text_tasks.h"

namespace weir {

// Names of the tasks, each that of its file without `.jsonl`.
std::vector<std::string> InfiniteBenchTasks();

// A task from its file, one object a line with `context`, `input`, `answer` and, where it is a choice, `options`; the
// published prompt (that for models without a template of their own, `yarn-mistral`), answer length and score.
// kNotFound for an unknown name, kCorrupt names the line and what it lacks.
Result<TextTask> ParseInfiniteBench(const std::string& name, std::string_view jsonl);

}  // namespace weir
