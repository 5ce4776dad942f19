// SPDX-License-Identifier: Apache-2.0
#include "engine/session/rewind_mark.h"

#include <algorithm>

namespace weir {

void RewindMark::Before(const SessionCore& core, const Chunk& chunk, bool has_logits) const {
  if (IsPlain(chunk, has_logits)) {
    // Other conversations share the pinned words: their end is kept.
    const int64_t n = core.stream.n_seen;
    core.pot->Mark(n, n == core.stream.n_pinned && !chunk.pinned);
  }
}

void RewindMark::Note(const SessionCore& core, const Chunk& chunk, const BatchItem& item, bool has_logits) {
  plain_ = IsPlain(chunk, has_logits);
  if (plain_) n_ = core.stream.n_seen;
  const bool whole = chunk.n == core.plan.chunk_rows && item.evidence == nullptr;
  plain_ = plain_ && (chunk.pinned ? core.stream.n_pinned == core.stream.n_seen : whole);
}

int64_t RewindMark::Point(const SessionCore& core, const EvidenceSet& evidence, int64_t n_same, int64_t n_call) const {
  if (core.options.nll) return 0;
  const int64_t chunk = core.plan.chunk_rows;
  // Leave room for a chunk, so that rows vote again before a selection needs scores that Rewind() has cleared.
  const int64_t most = std::min({n_same - 1, core.n_slots() - chunk, evidence.MostRewound(n_call)});
  const int64_t beyond = std::max<int64_t>(0, n_ - most);
  int64_t n = n_ - (beyond + chunk - 1) / chunk * chunk;
  if (n > 0) n = core.pot->PlaceBefore(n);
  return n > 0 && !core.pot->meta(0)[static_cast<size_t>(n)].pinned ? n : 0;
}

}  // namespace weir
