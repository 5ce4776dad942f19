// SPDX-License-Identifier: Apache-2.0
#include "chat/prompt_reuse.h"

#include <algorithm>

#include "chat/prompt_reader.h"

namespace weir {
namespace {

// Counts the pinned words, then the words up to the end or to the first picture; everything after that is read again.
int64_t TokensHeld(const Session& session, std::span<const PromptPart> prompt) {
  const std::span<const SlotMeta> held = session.pot().meta(0);
  size_t n_same = 0, end = 0;
  for (const PromptPart& part : prompt) {
    if (part.visual) break;
    const size_t begin = end;
    end += part.tokens.size();
    while (n_same < std::min(end, held.size()) && held[n_same].token_id == part.tokens[n_same - begin] &&
           held[n_same].pinned == part.pinned) {
      ++n_same;
    }
    if (n_same < end || !part.pinned) break;
  }
  return session.RewindPoint(static_cast<int64_t>(n_same), static_cast<int64_t>(end));
}

}  // namespace

PotChoice ChoosePot(std::span<Session* const> free, std::span<const PromptPart> prompt) {
  PotChoice best;
  for (size_t i = 0; i < free.size(); ++i) {
    const int64_t n = TokensHeld(*free[i], prompt);
    if (n > best.n_tokens && 2 * n >= free[i]->n_rewindable()) best = {i, n};
  }
  return best.n_tokens > 0 ? best : PotChoice{0, TokensHeld(*free[0], prompt)};
}

}  // namespace weir
