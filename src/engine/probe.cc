#include "engine/probe.h"

#include <algorithm>
#include <string>

namespace weir {

Result<std::vector<int32_t>> ProbeTokens(const PolicyNeeds& needs, const Tokenizer& tokenizer, const ChatTemplate* chat,
                                         std::string_view question) {
  if (needs.evidence.rows != EvidenceRows::kProbe) return std::vector<int32_t>();
  std::string text = needs.probe;
  constexpr std::string_view kMark = "{question}";
  for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + question.size())) {
    text.replace(at, kMark.size(), question);
  }
  std::vector<TextPiece> pieces;
  if (needs.probe_in_template && chat != nullptr) {
    WEIR_ASSIGN_OR_RETURN(pieces, chat->Render({{"user", text}}, true));
    // What stands before the probe belongs to a conversation's beginning.
    const auto content = std::find_if(pieces.begin(), pieces.end(), [&](const TextPiece& piece) {
      return piece.text.find(text) != std::string::npos;
    });
    if (content == pieces.end()) return Internal("the chat template lost the probe's text");
    content->text = content->text.substr(content->text.find(text));
    pieces.erase(pieces.begin(), content);
  } else {
    pieces.push_back({text, false});
  }
  EncodeReport report;
  std::vector<int32_t> tokens = tokenizer.EncodePieces(pieces, false, &report);
  if (tokens.empty()) return InvalidArgument("the policy's probe is empty");
  return tokens;
}

Status PrepareProbe(const Tokenizer& tokenizer, const ChatTemplate* chat, std::string_view question,
                    SessionOptions* options) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy, options->policy.Make());
  WEIR_ASSIGN_OR_RETURN(options->probe, ProbeTokens(policy->Needs(), tokenizer, chat, question));
  options->max_probe = std::max(options->max_probe, static_cast<int32_t>(options->probe.size()));
  return Status();
}

}  // namespace weir
