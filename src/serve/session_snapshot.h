// SPDX-License-Identifier: Apache-2.0
// Saves a stream session to a file and restores it: its state, its conversation, and its video clock and counters.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/session_file.h"
#include "io/snapshot.h"
#include "serve/host.h"

namespace weir {

// Writes everything needed to recreate the session, but its archive: `recall` is of RecallStore::Save(). `leaving`:
// webhooks that wait and move with the session. The caller finishes the file: syncing takes longest and does not need
// the engine. [engine]
Result<std::unique_ptr<SnapshotWriter>> WriteSnapshot(const Host& host, const StreamSession& stream,
                                                      const std::optional<SessionNote::Recall>& recall,
                                                      const std::vector<WebhookQueue::Event>& leaving,
                                                      const std::string& path);

// Creates a session from such a file. An empty id: a new id. kInvalidArgument for a snapshot of another model or of a
// policy that this build lacks; errors of Host::Create, RecallStore::Reserve and RestoreState. [engine]
Result<StreamSession*> ReadSnapshot(Host& host, SnapshotReader& snapshot, const std::string& id = "");

}  // namespace weir
