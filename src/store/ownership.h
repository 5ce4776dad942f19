// SPDX-License-Identifier: Apache-2.0
// One owner at a time: which server a session in a store belongs to, and which state of it is the newest.
//
// The head of a session is one note: its owner's lease, a token, and the file of its state. Every change is a write on
// the condition that the head is what the writer has read or written last; a change of owner raises the token by one
// (the fencing token), and every write the count. So of two servers that think they own a session one is refused,
// whatever its clock says, and knows that it has lost the session. A new state is written as a new file first, then
// named by the head; files are never written twice. A server takes a session whose head names no owner, itself, or an
// owner whose lease has ended (store/lease.h).
//
// Per session, calls must not overlap; different sessions do not wait for each other. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/lease.h"
#include "store/stores/store.h"

namespace weir {

class Ownership {
 public:
  // Both must outlive it.
  Ownership(Store& store, Lease& lease) : store_(store), lease_(lease), watch_(store) {}

  enum class Found {
    kNothing,    // the store has no such session
    kElsewhere,  // another server has it, or has taken it a moment ago
    kTaken,      // it is this server's now
  };
  struct Taken {
    Found found = Found::kNothing;
    std::string state;  // the file to read, of kTaken
  };
  // kIo also where this server has no valid lease itself.
  Result<Taken> Take(const std::string& id);
  // A key for a new state of the session.
  std::string NewState(const std::string& id);
  // Makes a file that was sent the newest state. `keep`: the session stays here; otherwise others may take it. False:
  // another server has taken the session, and nothing was changed. kIo: it is not known whether it was; Take() tells.
  // A session that the store did not have is this server's if nobody made it meanwhile.
  Result<bool> Commit(const std::string& id, const std::string& state, bool keep);
  // Gives a session that was taken back unchanged.
  Result<bool> GiveBack(const std::string& id);
  // Removes it from the store: it was deleted, or lives on here alone. False as for Commit().
  Result<bool> Forget(const std::string& id);
  // Whether this server owns the session, without asking the store: its lease is valid, and the session was not lost.
  bool Mine(const std::string& id) const;
  // Drops what is known of a session: it was lost.
  void Drop(const std::string& id);
  // The fencing token under which this server has the session; 0: it has not.
  int64_t token(const std::string& id) const;

  // Whether the store has the session, with an owner or not. kIo.
  Result<bool> Holds(const std::string& id);
  // The same, without an owner: it was left for others.
  Result<bool> IsLeft(const std::string& id);
  // Sessions of the store, some of which may have been removed.
  Result<std::vector<std::string>> Sessions();

  static std::string KeyOf(const std::string& id) { return "handover/" + id + ".weir"; }

 private:
  // What is known of the head: as it was read or written last.
  struct Owned {
    std::string lease, version, state;  // version empty: the store has none
    int64_t token = 0, count = 0;
  };
  struct Head {
    std::string owner, state, version;
    int64_t token = 0, count = 0;
    bool gone = false;
    bool there() const { return !version.empty() && !gone; }
  };
  Result<Head> ReadHead(const std::string& id);
  std::string HeadText(const Head& head);
  std::optional<Owned> Known(const std::string& id) const;
  // Writes `next` over the head of that version. Nullopt: it has another one.
  Result<std::optional<std::string>> WriteHead(const std::string& id, Head next, const std::string& over);
  Result<bool> Advance(const std::string& id, const std::string& state, const std::string& owner);

  Store& store_;
  Lease& lease_;
  LeaseWatch watch_;
  mutable std::mutex mutex_;
  std::map<std::string, Owned> owned_;
  int64_t n_writes_ = 0;  // under mutex_: makes every text another
};

}  // namespace weir
