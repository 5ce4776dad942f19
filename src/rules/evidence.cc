// SPDX-License-Identifier: Apache-2.0
#include "rules/evidence.h"

#include <algorithm>

namespace weir {

RuleEvidence FindEvidence(const Session& session, const Tokenizer& tokenizer, int64_t from) {
  RuleEvidence out;
  out.from_token = from;
  out.to_token = session.n_seen();
  std::vector<int32_t> tokens;
  int64_t frame = -1;
  const std::span<const SlotMeta> slots = session.pot().meta(0);
  for (auto slot = slots.rbegin(); slot != slots.rend() && slot->seq >= from; ++slot) {
    if (slot->modality == Modality::kText) {
      if (tokens.size() < kMostEvidenceTokens && slot->token_id >= 0) tokens.push_back(slot->token_id);
    } else if (slot->frame() != frame && out.frames_ms.size() < kMostEvidenceFrames) {
      frame = slot->frame();
      out.frames_ms.push_back(slot->t_src_ms);
    }
  }
  std::ranges::reverse(tokens);
  std::ranges::reverse(out.frames_ms);
  const std::string text = tokenizer.Decode(tokens);
  size_t begin = text.size() - std::min(text.size(), kMostEvidenceBytes);
  while (begin > 0 && begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) ++begin;
  out.text = text.substr(begin);  // takes no more memory than its own words
  return out;
}

Json ToJson(const RuleEvidence& evidence) {
  Json out = {{"tokens", {evidence.from_token, evidence.to_token}}};
  if (!evidence.frames_ms.empty()) out["frames_ms"] = evidence.frames_ms;
  if (!evidence.text.empty()) out["text"] = evidence.text;
  return out;
}

}  // namespace weir
