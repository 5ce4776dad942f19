// SPDX-License-Identifier: Apache-2.0
// A text with a place for a question in it.
#pragma once

#include <string>
#include <string_view>

namespace weir {

// Stands for the question in the form of an exam's questions and in a policy's probe (InfiniPot section 4.4, CaP-Q).
inline constexpr std::string_view kQuestionMark = "{question}";

// `form` with the question in place of every kQuestionMark; what the question itself contains is left alone.
std::string PutQuestion(std::string_view form, std::string_view question);

}  // namespace weir
