// SPDX-License-Identifier: Apache-2.0
// A stream session as answers report it.
#pragma once

#include "io/json.h"
#include "serve/session_table.h"

namespace weir {

// A session's description and contents. [engine]
Json SessionJson(const StreamSession& stream);

// {"arrived", "read", "dropped", "waiting"}: frames of a live video.
Json FramesJson(const FrameCounters& frames);

}  // namespace weir
