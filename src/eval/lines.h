// SPDX-License-Identifier: Apache-2.0
// Lines with one number each, the material of line retrieval (LongEval: Li et al. 2023, "How Long Can Open-Source LLMs
// Truly Promise on Context Length?"; StreamEval: Xiao et al. 2023, arXiv 2309.17453, section 4.4 and figure 8;
// Inf-MLLM, arXiv 2409.09086, section 4.2). Values are uniform in 1..50000.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "eval/examinee.h"

namespace weir {

// The form of a line's key.
enum class LineKeys {
  kNumber,  // its number: 1, 2, 3 ... (StreamEval)
  kPair,    // "quiet-harbor": adjective and noun (LongEval's LRT-NL)
  kWord,    // "harbor". Small models find it far more often than a number that is spread over several tokens
};

// The form of a line.
enum class LineFormat {
  kRegister,  // The REGISTER_CONTENT in line KEY is <VALUE>
  kLongEval,  // line KEY: REGISTER_CONTENT is <VALUE>
  kPlain,     // KEY: VALUE
};

struct Line {
  std::string key;
  int32_t value = 0;
};

// An endless sequence of lines. Keys repeat only after all have been used, each pass in a new order: two lines with the
// same key are at least n_keys() / 2 lines apart.
class LineSource {
 public:
  LineSource(LineKeys keys, uint64_t seed);
  Line Next();
  // Number of different keys. INT64_MAX for numbers.
  int64_t n_keys() const;

 private:
  std::string Name(int64_t idx) const;
  LineKeys keys_;
  Rng rng_;
  std::vector<int32_t> order_;  // of the names in this pass
  int64_t n_ = 0;
};

constexpr int32_t kMaxLineValue = 50000;

// The words before the first line, and a line with its line end.
std::string LinesHeader();
std::string LineText(LineFormat format, const Line& line);
// The question for a line: the line's beginning restated, or a sentence.
Question LineQuestion(LineFormat format, const Line& line);

// One whole LongEval prompt: header, n_lines lines, and a question for one of them.
struct LinesPrompt {
  std::vector<Line> lines;
  int32_t target = 0;  // index of the line in question, uniform
};
LinesPrompt MakeLinesPrompt(LineKeys keys, int32_t n_lines, uint64_t seed);

// A published LongEval case (one JSON object per line): `prompt`, `expected_number`.
struct LinesCase {
  std::string prompt;
  int64_t expected = 0;
  int32_t n_lines = 0;  // 0: not stated
};
// The message of kCorrupt names the line that is not such an object.
Result<std::vector<LinesCase>> ParseLinesCases(std::string_view jsonl);

}  // namespace weir
