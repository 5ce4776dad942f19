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

// By LongBench's name: qa_f1, rouge, retrieval, retrieval_zh, count. The best over the gold answers. kUnsupported for
// other metrics (the Chinese ones compare words, which needs a segmenter), kInvalidArgument without gold answers.
Result<double> LongBenchScore(std::string_view metric, std::string_view prediction, std::span<const std::string> golds);

}  // namespace weir
