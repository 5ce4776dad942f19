// SPDX-License-Identifier: Apache-2.0
// LongBench's metrics (Bai et al. 2023, arXiv 2308.14508, table 1), each in [0, 1].
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

// F1 of two bags of words, in lower case, without ASCII punctuation and the articles a, an, the.
double QaF1(std::string_view prediction, std::string_view gold);
// ROUGE-L (Lin 2004): F1 of the longest common subsequence of words; words end at white space. Over the whole texts,
// not sentence by sentence. Time and memory are proportional to the product of the word counts; texts are truncated to
// 8,192 words.
double RougeL(std::string_view prediction, std::string_view gold);
// Share of the integers of the prediction that equal the first integer of the gold answer; 0 where there is none.
double IntegerShare(std::string_view prediction, std::string_view gold);

// Of the class names that the prediction contains, 1 / their number if the gold answer is one of them, otherwise 0.
// Names that are part of the gold answer do not count ("city" in "city or state").
double ClassShare(std::string_view prediction, std::string_view gold, std::span<const std::string> classes);
// The first line that is neither empty nor has a comment or a fence in it (`, # or //), against the gold line: twice
// the length of the longest common subsequence of characters over both lengths, rounded to hundredths. Of long lines
// the first 4,096 bytes.
double CodeSimilarity(std::string_view prediction, std::string_view gold);

// By LongBench's name: qa_f1, rouge, retrieval, retrieval_zh, count, classification, code_sim. The best over the gold
// answers. `classes`: for classification. kUnsupported for other metrics (the Chinese ones compare words, which needs a
// segmenter), kInvalidArgument without gold answers, or without classes where they are needed.
Result<double> LongBenchScore(std::string_view metric, std::string_view prediction, std::span<const std::string> golds,
                              std::span<const std::string> classes = {});

}  // namespace weir
