// SPDX-License-Identifier: Apache-2.0
// The words of a passage, in whole sentences where they end nearby.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "recall/block.h"
#include "recall/selectors/selector.h"

namespace weir {

// Whether the source has the passage's blocks where the passage says, with words or pictures in them. What points to
// them may outlive them: keys are kept in files of their own, and blocks are deleted for the quota, or damaged. Errors
// of the source.
Result<bool> HasPassage(const Passage& passage, BlockSource& blocks);

// Reads a passage from its source and extends it into the blocks before and after it: back to the beginning of its
// first sentence, on to the end of its last. White space at both ends is removed, control characters inside become
// spaces. Empty if the blocks are gone: others are never read instead. Errors of the source.
Result<std::string> PassageText(const Passage& passage, BlockSource& blocks);

// Of a text, the sentence that shares most words with the question, and as many sentences before and after it: few
// words disturb a small model least. Among equals the last. Where none shares a word, the whole text.
std::string_view AroundBestSentence(std::string_view text, std::string_view question, int32_t n_context);
// Of a text, the sentences that bytes [begin, end) are part of.
std::string_view WholeSentences(std::string_view text, size_t begin, size_t end);

}  // namespace weir
