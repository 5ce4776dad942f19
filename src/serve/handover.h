// Sessions that move from one server to another when the first one is told to end.
//
// Servers that share a folder hand sessions over through it: a server that drains writes each session there under its
// id, and whoever is asked for a session that it does not have takes it from there. A session is written when nothing
// works on it any more, and taken by one server alone: the file is renamed first. Sessions that nobody uses are left
// there in the same way.
#pragma once

#include <string>

#include "base/status.h"
#include "serve/host.h"

namespace weir {

class Handover {
 public:
  // Uses FOLDER/handover, which is made where it is missing; no folder: nothing is handed over. kIo when it cannot be.
  static Result<Handover> Make(const std::string& folder);

  bool enabled() const { return !folder_.empty(); }
  // Waits until nothing works on the session, writes it to the folder, and forgets it here. Ok when it is not here any
  // more. When it cannot be written it stays.
  Status Leave(Host& host, const std::string& id) const;
  // The same for a session that nothing works on. False: something does, and it stays.
  Result<bool> LeaveIdle(Host& host, const std::string& id) const;
  // [engine] Writes the session to the folder; whoever calls it forgets it. REQUIRES: enabled(), nothing works on it.
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
