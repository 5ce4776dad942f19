// SPDX-License-Identifier: Apache-2.0
// Scores of short answers as in the papers' tables: a model's answer is compared with the gold answers, and the best
// match counts. Every score is in [0, 1] except CIDEr (eval/cider.h), which needs all answers of a set at once.
//
// exact    the answer is one of the right ones, apart from ASCII case, white space and a period at the end
// vqa      VQA accuracy (Antol et al. 2015, VQA; Goyal et al. 2017): right as far as three people said the same
// anls     average normalised Levenshtein similarity (Biten et al. 2019, ST-VQA): near misses of read text count
// f1       of the two bags of words, as SQuAD has it (QaF1 of eval/longbench_metrics.h)
// contains the answer has a right one somewhere in it, apart from ASCII case and white space (OCRBench; its formulas
//          are compared without spaces and with case, which this does not do)
// rouge_l  of the longest common subsequence of words (RougeL there)
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weir {

// Trims white space at the ends, collapses runs of it into one space, and lowers ASCII letters.
std::string PlainText(std::string_view text);

bool ExactMatch(std::string_view prediction, std::string_view gold);

// An empty gold answer is in nothing.
bool Contains(std::string_view prediction, std::string_view gold);

// Normalises a text as VQA's evaluation does: lower case, numbers up to ten as digits, no articles, no punctuation. Two
// differences: apostrophes are removed on both sides, while the published evaluation restores missing ones from a list;
// and the rules apply to every question, while it leaves unanimous answers unchanged.
std::string VqaText(std::string_view text);
// The mean of min(1, equal answers / 3) over all leave-one-out sets of answers. With fewer than four answers, where
// three others cannot agree: 1 if any answer is equal, else 0.
double VqaAccuracy(std::string_view prediction, std::span<const std::string> golds);

// 1 - edit distance / length of the longer text, over characters (Unicode code points) of PlainText(); 0 where that is
// 0.5 or less. The best over the gold answers. Texts are truncated to 4,096 characters.
double Anls(std::string_view prediction, std::span<const std::string> golds);

// By the names above. kUnsupported lists them; kInvalidArgument without gold answers.
Result<double> AnswerScore(std::string_view metric, std::string_view prediction, std::span<const std::string> golds);
// Ok for the names above and `cider`.
Status CheckAnswerMetric(std::string_view metric);

}  // namespace weir
