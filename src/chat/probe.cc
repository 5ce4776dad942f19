// SPDX-License-Identifier: Apache-2.0
#include "chat/probe.h"

#include <algorithm>
#include <string>

namespace weir {

Result<std::vector<int32_t>> ProbeTokens(const PolicyNeeds& needs, const Tokenizer& tokenizer, const ChatTemplate* chat,
                                         std::string_view question) {
  if (needs.evidence.rows != EvidenceRows::kProbe) return std::vector<int32_t>();
  std::vector<TextPiece> pieces = {{PutQuestion(needs.probe, question), false}};
  if (needs.probe_in_template && chat != nullptr) {
    // The words after a user's text; the words before it belong to the beginning of a conversation. The probe itself is
    // not rendered as a user's text, because templates trim those.
    const std::vector<TextPiece> after = ChatRounds(*chat).Turn().after;
    pieces.insert(pieces.end(), after.begin(), after.end());
  }
  EncodeReport report;
  std::vector<int32_t> tokens = tokenizer.EncodePieces(pieces, false, &report);
  if (tokens.empty()) return InvalidArgument("the policy's probe is an empty text: give it words, e.g. catalyst=TEXT");
  return tokens;
}

Status PrepareProbe(const Tokenizer& tokenizer, const ChatTemplate* chat, std::optional<std::string_view> question,
                    SessionOptions* options) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy, options->policy.Make());
  const PolicyNeeds needs = policy->Needs();
  if (!question && needs.probe.find(kQuestionMark) != std::string::npos) {
    return InvalidArgument(
        "policy {}: its catalyst names {}, and no question is known here before the text is read; "
        "leave it out, or ask together with the text (weir read --ask)",
        options->policy.info->name, kQuestionMark);
  }
  WEIR_ASSIGN_OR_RETURN(options->probe, ProbeTokens(needs, tokenizer, chat, question.value_or("")));
  options->max_probe = std::max(options->max_probe, static_cast<int32_t>(options->probe.size()));
  return Status();
}

}  // namespace weir
