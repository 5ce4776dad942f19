// SPDX-License-Identifier: Apache-2.0
// What a session still holds of its stream, over time and layers: what a page draws.
#pragma once

#include <array>

#include "engine/session.h"
#include "io/json.h"

namespace weir {

// The stream so far is cut into at most `n_bins` equal parts. `held` has one list of rows a modality that is held at
// all; a row is a layer (one row for all, where all layers hold the same), a number the slots that it holds of one
// part, on average over KV heads that differ. REQUIRES: n_bins >= 1.
Json HeldMap(const Session& session, int64_t n_bins);

// The oldest and the newest moment (SlotMeta::t_src_ms) that tokens of a modality still speak of.
struct HeldSpan {
  int64_t from_ms = -1, to_ms = -1;  // -1: no such token is held
};
std::array<HeldSpan, kNumModalities> HeldSpans(const Pot& pot);

// {"text": {"seen", "kept", "dropped"}, "video": {..., "from_ms", "to_ms"}}: what was seen at all, and where something
// of it is held the span of time that it comes from.
Json ModalitiesJson(const SessionCounters& counters, const std::array<HeldSpan, kNumModalities>& spans);

// What a session like this one would need if it had forgotten nothing, in bytes: keys and values of every token it saw
// in place of its pot's.
int64_t UnboundedBytes(const Session& session);

}  // namespace weir
