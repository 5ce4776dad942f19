// SPDX-License-Identifier: Apache-2.0
// LongMemEval (Wu et al. 2024, arXiv 2410.10813): a user's chats over months, a question about them, and the turns that
// answer it.
//
// The published score asks a language model to judge. Without one there are: the share of the answering turns that the
// pot holds when the question has been answered, with recall whether it was found (eval/text_tasks.h), and the overlap
// of words with the published answer (qa_f1), which is no more than a hint where answers are sentences.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/text_tasks.h"

namespace weir {

// The tasks of a file in the published layout (longmemeval_s.json, longmemeval_oracle.json): one for every
// question_type, those whose question_id ends in _abs, which nothing answers, apart. Sessions are shown in the order of
// their dates, as text ("nl" of the published program). kCorrupt names the sample and the key that is missing.
Result<std::vector<TextTask>> ParseLongMemEval(std::string_view json);

}  // namespace weir
