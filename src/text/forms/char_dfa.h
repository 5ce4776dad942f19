// SPDX-License-Identifier: Apache-2.0
// Deterministic automata over characters: for expressions that have to be true together, or must not be true.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/forms/expression.h"
#include "text/forms/form_limits.h"

namespace weir::forms {

struct CharDfa {
  // Class c has the characters from begins[c] up to begins[c + 1] or the last one. begins[0] is 0.
  std::vector<char32_t> begins;
  // [states][classes]: the next state; state 0 is dead, state 1 the start.
  std::vector<int32_t> next;
  std::vector<bool> accepts;
  size_t n_classes() const { return begins.size(); }
  int64_t n_cells() const { return static_cast<int64_t>(next.size()); }
};

// The texts that the expression reads as a whole; with `search`, those that have one of them anywhere. ^ and $ mean the
// beginning and the end of the text. kInvalidArgument for one that is too large.
// `work`: steps that may still be taken; those that were are taken away.
Result<CharDfa> DfaOf(const Expression& expression, bool search, DfaWork* work);
// Just these texts, which are valid UTF-8.
Result<CharDfa> DfaOfTexts(const std::vector<std::string>& texts, const DfaWork& work);
Result<CharDfa> DfaOfLength(int64_t min, int64_t max, const DfaWork& work);  // max < 0: any
Result<CharDfa> Both(const CharDfa& a, const CharDfa& b, DfaWork* work);
CharDfa Not(const CharDfa& dfa);
// No text at all.
bool IsEmpty(const CharDfa& dfa);
bool Reads(const CharDfa& dfa, std::string_view text);

void Emit(const CharDfa& dfa, Writing writing, int32_t from, int32_t to, NetworkBuilder* network);

}  // namespace weir::forms
