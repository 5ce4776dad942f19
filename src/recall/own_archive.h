// SPDX-License-Identifier: Apache-2.0
// Whether the archive in a folder belongs to the session that is to go on with it: nothing of another one is cut.
#pragma once

#include <optional>

#include "base/status.h"
#include "recall/stream_recall.h"

namespace weir {

// `saved`: where the session's archive was when the session was saved; nullopt for a session that begins, or was saved
// without one. kInvalidArgument for an archive that has something else there (Archive::Has()). Changes nothing. Errors
// of the archive.
Status CheckOwnArchive(StreamRecall& recall, const std::optional<ArchivePoint>& saved);

// The same, then StreamRecall::CutTo(): call it when the session was restored, or begins.
Status GoOnFrom(StreamRecall& recall, const std::optional<ArchivePoint>& saved);

}  // namespace weir
