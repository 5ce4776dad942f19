// SPDX-License-Identifier: Apache-2.0
// What a part of a session's stream says, as far as anybody still has it, for the web page.
#pragma once

#include "io/json.h"
#include "kv/types.h"
#include "serve/session_table.h"
#include "text/tokenizer.h"

namespace weir {

// `range` of the stream, of which only what was seen counts. `runs` are its tokens in order, together while they are of
// one state (held, on_disk, gone), modality and time; those that are held have their text, and in how many of the
// `layers` rows of the map they are held on average. `passages` is what the archive says about the range, in the blocks
// that it keeps: they may begin before it and end behind it. Excerpts that were taken back are in no run. kIo when the
// archive cannot be read. [engine]; works in proportion to the range.
Result<Json> StreamPart(const StreamSession& stream, SeqRange range, const Tokenizer& tokenizer);

}  // namespace weir
