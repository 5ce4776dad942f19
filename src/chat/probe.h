// SPDX-License-Identifier: Apache-2.0
// The probe of a policy as tokens: a catalyst prompt (InfiniPot section 3.3), optionally with the question in it,
// followed by the words that a chat template puts between a user's turn and the answer.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/question_form.h"
#include "engine/session.h"
#include "policy/policy.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace weir {

// Empty for a policy that needs no probe. `chat` may be nullptr: the template's tail is then left out. Every
// kQuestionMark in the probe becomes `question`.
Result<std::vector<int32_t>> ProbeTokens(const PolicyNeeds& needs, const Tokenizer& tokenizer, const ChatTemplate* chat,
                                         std::string_view question);

// Fills in options->probe and options->max_probe for options->policy. kInvalidArgument if the probe contains the
// question but there is none (nullopt: the question is not known before the text that the probe ranks).
Status PrepareProbe(const Tokenizer& tokenizer, const ChatTemplate* chat, std::optional<std::string_view> question,
                    SessionOptions* options);

}  // namespace weir
