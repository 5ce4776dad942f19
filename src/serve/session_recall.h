// SPDX-License-Identifier: Apache-2.0
// Recall of one stream session of a server (serve/recall_store.h makes it).
#pragma once

#include <memory>
#include <string>

#include "base/ledger.h"
#include "recall/stream_recall.h"

namespace weir {

// [engine]
struct SessionRecall {
  RecallOptions options;                 // `dir`: of the archive in use
  std::string own_dir;                   // the session's folder, deleted with it; "": files without names
  Reservation disk;                      // of what all archives may take
  std::string note;                      // what went wrong when the session came back, one line; "": nothing
  bool stays = false;                    // the archive is not deleted with this object
  std::unique_ptr<StreamRecall> stream;  // nullptr where no archive can be used: `note` says why

  SessionRecall() = default;
  ~SessionRecall();
  SessionRecall(const SessionRecall&) = delete;
  SessionRecall& operator=(const SessionRecall&) = delete;
  // All that is to be said of the archive: `note`, what it lost, why nothing more is kept.
  std::string Notes() const;
};

}  // namespace weir
