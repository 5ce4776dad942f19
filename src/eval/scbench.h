// SPDX-License-Identifier: Apache-2.0
// SCBench (Li et al. 2024, arXiv 2412.10319): several questions about one long context. Of its tasks those that are
// scored by comparing; the questions share the context and not each other ("same context, different query").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/text_tasks.h"

namespace weir {

// Names of the tasks, each that of its file without `.jsonl`.
std::vector<std::string> ScBenchTasks();

// A task from its file, one object a line with `context` and `multi_turns`, each of these with `input`, `answer` and,
// where it is a choice, four `options`; the published prompt, answer length and score. kNotFound for an unknown name,
// kCorrupt names the line and what it lacks.
Result<TextTask> ParseScBench(const std::string& name, std::string_view jsonl);

}  // namespace weir
