// SPDX-License-Identifier: Apache-2.0
// A stream session as a file, and back: its state, its conversation, and what it has watched.
#pragma once

#include <memory>
#include <string>

#include "io/snapshot.h"
#include "serve/host.h"

namespace weir {

// Everything that is needed to make the session again. The caller finishes the file: syncing it takes longest, and
// needs no engine. [engine]
Result<std::unique_ptr<SnapshotWriter>> WriteSnapshot(const Host& host, const StreamSession& stream,
                                                      const std::string& path);

// A new session from such a file. An empty id: a new one. kInvalidArgument for a snapshot of another model or of a
// policy that is not here; errors of Host::Create and RestoreState. [engine]
Result<StreamSession*> ReadSnapshot(Host& host, SnapshotReader& snapshot, const std::string& id = "");

}  // namespace weir
