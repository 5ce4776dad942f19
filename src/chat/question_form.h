// SPDX-License-Identifier: Apache-2.0
// A text with a placeholder for a question.
#pragma once

#include <string>
#include <string_view>

namespace weir {

// The placeholder, in the form of an exam's questions and in a policy's probe (InfiniPot section 4.4, CaP-Q).
inline constexpr std::string_view kQuestionMark = "{question}";

// Replaces every kQuestionMark in `form` with the question; a mark inside the question itself is not replaced.
std::string PutQuestion(std::string_view form, std::string_view question);

}  // namespace weir
