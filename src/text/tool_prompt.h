// SPDX-License-Identifier: Apache-2.0
// Tools for templates that have no place for them: a text describes the tools, and calls and their results become texts
// of the conversation, in the form that the dialect "generic" reads.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "text/answer_reader.h"
#include "text/chat_template.h"

namespace weir {

// Tools and how to call them, as a system text. `tools`: a list in the OpenAI API's form. `must`: a call is expected;
// `one`: of one tool at a time.
std::string DescribeTools(const Json& tools, bool must, bool one);

// Puts a text before the system message, or into a new one; into the first user's message where the template shows no
// system text.
void AddSystemText(const AnswerForm& form, const std::string& text, std::vector<ChatMessage>* messages);

// Writes the calls and results that the template does not show into the contents. What it does show stays.
void WriteOutCalls(const AnswerForm& form, std::vector<ChatMessage>* messages);

}  // namespace weir
