// What a session still holds of its stream, over time and layers: what a page draws.
#pragma once

#include "engine/session.h"
#include "serve/json.h"

namespace weir {

// The stream so far is cut into at most `n_bins` equal parts. `held` has one list of rows a modality that is held at
// all; a row is a layer (one row for all, where all layers hold the same), a number the slots that it holds of one
// part, on average over KV heads that differ. REQUIRES: n_bins >= 1.
Json HeldMap(const Session& session, int64_t n_bins);

// What a session like this one would need if it had forgotten nothing, in bytes: keys and values of every token it saw
// in place of its pot's.
int64_t UnboundedBytes(const Session& session);

}  // namespace weir
