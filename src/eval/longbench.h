// SPDX-License-Identifier: Apache-2.0
// LongBench (Bai et al. 2023, arXiv 2308.14508): whole prompts from a file, answers scored by the task's metric.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/examinee.h"
#include "eval/suite.h"

namespace weir {

struct LongBenchSample {
  std::string dataset, metric, prompt;
  std::vector<std::string> answers;
  std::vector<std::string> all_classes;  // of metric classification
  int32_t max_new_tokens = 0;            // LongBench's own, 1..4096
};

// One JSON object per line: `dataset`, `metric`, `prompt`, `answers` (texts), `max_new_tokens`, and `all_classes`
// (texts) for metric classification; other keys are ignored.
// kCorrupt names the line that lacks one.
Result<std::vector<LongBenchSample>> ParseLongBench(std::string_view jsonl);

// Prompts of these tasks are examples or code to continue: they are never put into a chat template (SnapKV's and
// LongBench's pred.py).
bool IsCompletionTask(std::string_view dataset);
// Of these, those with examples: what follows the answer's first line is the next example.
bool IsFewShotTask(std::string_view dataset);

// A prompt longer than max_tokens loses its middle: its first and last max_tokens / 2 tokens stay. 0: no limit.
void CutMiddle(std::vector<int32_t>* tokens, int64_t max_tokens);

// The last tokens of a prompt count as the question, the rest is read before it: a policy that uses the question sees
// these tokens.
inline constexpr size_t kLongBenchQuestion = 64;

struct LongBenchOptions {
  std::vector<std::string> datasets;  // empty: all in the file
  int32_t n = 0;                      // samples of every task; 0: all
  int64_t max_tokens = 0;             // of a prompt, see CutMiddle
  int32_t max_answer = 0;             // shortens LongBench's answers; 0: as published
};
// One cell per task (label `dataset`), with a score in [0, 1], in the order of the file. `completion` asks without the
// template, `chat` with it; they may be the same object. kUnsupported for a metric without an implementation.
Status RunLongBench(Examinee& completion, Examinee& chat, std::span<const LongBenchSample> samples,
                    const LongBenchOptions& options, const SuiteHooks& hooks);

}  // namespace weir
