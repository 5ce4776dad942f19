// SPDX-License-Identifier: Apache-2.0
// A map of what a session still holds of its stream, over time and layers, for the web page.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/session.h"
#include "io/json.h"
#include "serve/session_table.h"

namespace weir {

// `range` of the stream, of which only what was seen counts, is cut into at most `n_bins` equal parts. `held` has one
// list of rows per modality with held tokens. A row is a layer (one row for all layers if they hold the same); a number
// is the slots held of one part, averaged over KV heads that differ. REQUIRES: n_bins >= 1, 0 <= range.begin <=
// range.end. `states` says of each part how many of its tokens any layer and head holds, how many only the archive has,
// and how many are gone.
Json HeldMap(const StreamSession& stream, SeqRange range, int64_t n_bins);

// What became of the tokens of a range of what was seen, in parts of `per_part` tokens. Excerpts that were taken back
// are in none of the three: the passages themselves have their own places. (Of older ones than Session::gaps() knows,
// what the archive spans counts as on disk.)
struct StreamStates {
  std::vector<int64_t> held, on_disk, gone;
};
StreamStates StatesOf(const StreamSession& stream, SeqRange range, int64_t per_part);

// What the archive has of the stream, in one piece; empty without one.
SeqRange ArchivedRange(const StreamSession& stream);

// The oldest and the newest time (SlotMeta::t_src_ms) of a modality's held tokens.
struct HeldSpan {
  int64_t from_ms = -1, to_ms = -1;  // -1: no such token is held
};
std::array<HeldSpan, kNumModalities> HeldSpans(const Pot& pot);

// {"text": {"seen", "kept", "dropped"}, "video": {..., "from_ms", "to_ms"}}: what was seen, and for modalities with
// held tokens the span of time that these come from.
Json ModalitiesJson(const SessionCounters& counters, const std::array<HeldSpan, kNumModalities>& spans);

// The bytes that this session would need if it had forgotten nothing: with keys and values of every token seen instead
// of its pot's.
int64_t UnboundedBytes(const Session& session);

}  // namespace weir
