// SPDX-License-Identifier: Apache-2.0
// Moves sessions from one server to another when the first one shuts down.
//
// Servers that share a folder hand sessions over through it. A server that shuts down writes each session there under
// its id; a server that gets a request for a session it does not have takes it from there. A session is written once no
// job works on it. Only one server can take it, because it locks the file first, and removes it when the session runs;
// if it is killed before that, the file is there for the others. Idle sessions are stored in the folder in the same
// way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "serve/host.h"

namespace weir {

class Handover {
 public:
  // Uses FOLDER/handover and creates it if needed. An empty `folder` disables handover. kIo if the folder cannot be
  // created, or files in it cannot be locked.
  static Result<Handover> Make(const std::string& folder);

  bool enabled() const { return !folder_.empty(); }
  // Waits until no job works on the session, writes it to the folder, and ends it here. Ok if the session is gone from
  // this server. A session that cannot be written stays.
  Status Leave(Host& host, const std::string& id) const;
  // The same without waiting. False: a job works on the session, so it stays.
  Result<bool> LeaveIdle(Host& host, const std::string& id) const;
  // Writes the session to the folder, and leaves its archive to who takes it over; the caller ends it. REQUIRES:
  // enabled(), and no job works on it. [engine]
  Status Write(Host& host, StreamSession& stream) const;
  // Whether the folder has a session of that id.
  bool Holds(const std::string& id) const;
  // The sessions that the folder has, in any order.
  std::vector<std::string> Sessions() const;
  // Takes over a session. True if it was not here, was found in the folder and now runs here. kOverBudget if it does
  // not fit; another server may take it.
  Result<bool> Take(Host& host, const std::string& id) const;

 private:
  // Sessions that are being taken over.
  struct Underway {
    std::mutex mutex;
    std::condition_variable ended;
    std::set<std::string> ids;
  };
  class TakingOver;
  explicit Handover(std::string folder) : folder_(std::move(folder)) {}
  std::string PathOf(const std::string& id) const { return folder_ + "/" + id + ".weir"; }
  std::string folder_;
  std::unique_ptr<Underway> underway_ = std::make_unique<Underway>();
};

}  // namespace weir
