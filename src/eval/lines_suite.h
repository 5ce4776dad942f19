// SPDX-License-Identifier: Apache-2.0
// Line retrieval: one prompt per trial (LongEval), or one endless stream with questions on the way (StreamEval,
// Inf-MLLM section 4.2). Score: the number in the answer equals the line's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/examinee.h"
#include "eval/lines.h"
#include "eval/suite.h"

namespace weir {

struct LinesOptions {
  LineKeys keys = LineKeys::kWord;
  LineFormat format = LineFormat::kPlain;
  int32_t n = 100;  // trials per cell
  uint64_t seed = 0;
  int32_t n_answer = 12;
  // Stream. After every `every` lines, once the largest distance has been read, the question is about the line
  // `distance` lines back: `distance` lines were read after it.
  std::vector<int32_t> distances = {5, 10, 20, 40, 80};
  int32_t every = 10;
  int32_t gap_bytes = 0;  // generated prose after every line, which makes lines easier to tell apart
  // Questions and answers stay in the stream: rounds, one question each, distances in turn. The lines since the last
  // answer and the question are one prompt. No line is asked for twice: if the one at the distance was, the nearest
  // that was not is. Otherwise every distance is asked at every point, aside.
  bool carry = false;
  // LongEval: lines of a prompt.
  std::vector<int32_t> n_lines = {20, 40, 80};
};

// kInvalidArgument: a distance or a number of lines below 1, or lines of one key nearer than a distance.
Status CheckLinesOptions(const LinesOptions& options, bool stream);

// One cell per distance, with `distance` and how far back that was in tokens. Cells are reported at the end; if the
// stream is stopped or the pot may not shrink, with the answers up to then.
Status RunLinesStream(Examinee& examinee, const LinesOptions& options, const SuiteHooks& hooks);
// One cell per number of lines.
Status RunLinesPrompts(Examinee& examinee, const LinesOptions& options, const SuiteHooks& hooks);
// Published prompts, unchanged, at most options.n of them; one cell. In completion the model continues the sentence
// that LongEval's answers have.
Status RunLinesCases(Examinee& examinee, std::span<const LinesCase> cases, const LinesOptions& options,
                     const SuiteHooks& hooks);

}  // namespace weir
