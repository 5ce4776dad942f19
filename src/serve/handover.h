// SPDX-License-Identifier: Apache-2.0
// Sessions that move from one server to another when the first one is told to end.
//
// Servers that share a folder hand sessions over through it. A server that shuts down writes each session there under
// its id; a server that is asked for a session it does not have takes it from there. A session is written when no job
// works on it any more. Only one server can take it: the file is renamed first. Idle sessions are left there in the
// same way.
#pragma once

#include <string>

#include "base/status.h"
#include "serve/host.h"

namespace weir {

class Handover {
 public:
  // Uses FOLDER/handover and makes it where it is missing. An empty `folder`: nothing is handed over. kIo when the
  // folder cannot be made.
  static Result<Handover> Make(const std::string& folder);

  bool enabled() const { return !folder_.empty(); }
  // Waits until no job works on the session, writes it to the folder, and ends it here. Ok when it is not here any
  // more. A session that cannot be written stays.
  Status Leave(Host& host, const std::string& id) const;
  // The same without waiting. False: a job works on the session, which stays.
  Result<bool> LeaveIdle(Host& host, const std::string& id) const;
  // Writes the session to the folder; the caller ends it. REQUIRES: enabled(), and no job works on it. [engine]
  Status Write(const Host& host, const StreamSession& stream) const;
  // Whether a session of that id lies in the folder.
  bool Holds(const std::string& id) const;
  // True when the session was not here, was found in the folder and lives here now. kOverBudget when it does not fit:
  // another server may take it.
  Result<bool> Take(Host& host, const std::string& id) const;

 private:
  explicit Handover(std::string folder) : folder_(std::move(folder)) {}
  std::string PathOf(const std::string& id) const { return folder_ + "/" + id + ".weir"; }
  std::string folder_;
};

}  // namespace weir
