// SPDX-License-Identifier: Apache-2.0
// Rules as tokens: what is read aside to ask about them, and which answers count.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "chat/conversation.h"
#include "rules/rule.h"
#include "text/tokenizer.h"

namespace weir {

// Log-odds are those of the tokens in `for_it` against those in `against`, or against all others where that is empty.
struct RuleAnswers {
  std::vector<int32_t> for_it, against;
  // Tokens before the answer that the model would write anyway: a space of its own.
  std::vector<int32_t> before;
};
// kUnsupported where the vocabulary has no single tokens for yes and no. `conversation` asks the question.
Result<RuleAnswers> AnswersOf(const Rule& rule, const Tokenizer& tokenizer, const Conversation& conversation);
double LogOdds(std::span<const float> logits, const RuleAnswers& answers);

// One rule's question at the present place in a conversation: tokens that it shares with all rules of its kind, and its
// own.
struct RuleQuestion {
  std::vector<int32_t> head, tail;
};
RuleQuestion QuestionOf(const Rule& rule, const RuleAnswers& answers, const Conversation& conversation);
// The most tokens that its question has anywhere in the conversation.
int64_t MostTokens(const Rule& rule, const RuleAnswers& answers, const Conversation& conversation);

}  // namespace weir
