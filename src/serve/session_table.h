// SPDX-License-Identifier: Apache-2.0
// The table of stream sessions: each has its own pot for its whole lifetime and is found by its id.
//
// [engine] runs on the engine's thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/ledger.h"
#include "chat/conversation.h"
#include "engine/frame_store.h"
#include "engine/session.h"
#include "serve/frame_queue.h"
#include "serve/session_recall.h"
#include "serve/session_rules.h"

namespace weir {

// [engine]
struct StreamSession {
  std::string id;
  std::unique_ptr<Session> session;
  Conversation conversation;
  SessionOptions options;
  Reservation reservation;                   // of the host's ledger
  int64_t created_s = 0;                     // Unix time
  std::unique_ptr<FrameStore> kept_frames;   // in the session's ledger; nullptr without an encoder
  std::unique_ptr<SessionRecall> recall;     // nullptr: without; in the session's ledger
  std::unique_ptr<SessionRules> rules;       // nullptr: made without room for them
  std::shared_ptr<FrameQueue> frames;        // nullptr: no live video. Requests also hold it while they deliver a frame
  int64_t t_ms = 0;                          // the time of the last picture read
  std::optional<int64_t> rows_pruned;        // of its pictures; nullopt without a pruner
  Clock::time_point used_at = Clock::now();  // when a request last named it, or a job on it ended
  bool busy = false;                         // a job works on it, or it is on its way
  uint64_t n_changes = 0;                    // jobs that may have changed it
  bool closing = false;                      // it is being deleted: jobs end at their next step

  // Time since its last use; 0 while a job works on it.
  std::chrono::seconds idle() const {
    if (busy) return std::chrono::seconds(0);
    return std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - used_at);
  }
};

class SessionTable {
 public:
  // Whether there is a session of that id, which may end at any moment. Any thread; does not wait for the engine.
  bool Has(const std::string& id) const;

  // [engine] for this and all methods below. REQUIRES: there is no session of that id.
  StreamSession* Add(std::unique_ptr<StreamSession> stream);
  // nullptr if there is none or it is being deleted. Counts as a use of the session.
  StreamSession* Find(const std::string& id);
  // A session that no job works on and that was unused for at least `idle`; nullptr if there is none.
  StreamSession* FindIdle(std::chrono::seconds idle) const;
  // Ends the session and frees its pot, if there is one of that id.
  void Erase(const std::string& id);
  const std::map<std::string, std::unique_ptr<StreamSession>>& all() const { return sessions_; }

 private:
  mutable std::mutex mutex_;  // the engine's thread changes sessions_ under it, and reads them without
  std::map<std::string, std::unique_ptr<StreamSession>> sessions_;
};

}  // namespace weir
