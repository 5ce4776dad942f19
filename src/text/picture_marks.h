// SPDX-License-Identifier: Apache-2.0
// Splits renderings of conversations at pictures.
#pragma once

#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace weir {

// The pieces between the places where message contents have `mark`: n + 1 lists for n of them. The template's own words
// are not searched.
std::vector<std::vector<TextPiece>> SplitAtMark(const std::vector<TextPiece>& pieces, std::string_view mark);

}  // namespace weir
