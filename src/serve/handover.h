// SPDX-License-Identifier: Apache-2.0
// Sessions that outlive their server: they move to another one when it shuts down, and with `durable` also when it
// dies.
//
// Servers that share a store (store/stores/store.h) hand sessions over through it. A server that shuts down writes each
// session there; one that gets a request for a session that it does not have takes it from there. Only one can have it:
// the head of the session in the store says which (store/ownership.h). Idle sessions are stored in the same way.
//
// Without `durable` the store has a session only while no server does. With it the store has the newest state of every
// session: what a request changed is written there before the request is answered, under the owner's token, so that a
// server that was replaced can neither write nor acknowledge anything (SessionKeeper). A session whose owner died is
// taken once its lease has ended.
//
// Only the state's copy to this machine's disk is made on the engine's thread. What waits for the store are the
// requests of that session: it is busy while it moves.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "serve/host.h"
#include "serve/session_keeper.h"
#include "store/lease.h"
#include "store/ownership.h"
#include "store/stores/store.h"

namespace weir {

struct HandoverOptions {
  bool durable = false;
  std::string node;                        // of this server, for people; may be empty
  std::chrono::milliseconds lease{15000};  // how long others wait before they take what this server has
};

class Handover final : public SessionKeeper {
 public:
  // Without a store: disabled. `store` must outlive it. Errors of Lease::Make(); kIo for a folder in which files cannot
  // be locked.
  static Result<std::unique_ptr<Handover>> Make(Store* store, const HandoverOptions& options);
  ~Handover() override;

  bool enabled() const { return store_ != nullptr; }
  // Call before the first request; `host` must outlive it. A lease that is lost ends sessions there.
  void Attach(Host* host);

  // Waits until no job works on the session, writes it to the store, and ends it here. Ok if the session is gone from
  // this server. A session that cannot be written stays.
  Status Leave(Host& host, const std::string& id);
  // The same without waiting for jobs. False: a job works on the session, so it stays.
  Result<bool> LeaveIdle(Host& host, const std::string& id);
  // Whether the store has a session of that id, with an owner or without. False if it does not answer.
  bool Holds(const std::string& id);
  // Sessions that were left for others.
  Result<std::vector<std::string>> Left();
  // Takes over a session. True if it was not here, was found and now runs here; false if it is here, does not exist, or
  // another server has it. kOverBudget if it does not fit; another server may take it.
  Result<bool> Take(Host& host, const std::string& id);

  SessionTicket Ticket(const std::string& id) const override;
  ApiError Settle(Host& host, const std::string& id, SessionTicket ticket, bool reads) override;
  Status Deleted(const std::string& id) override;

 private:
  // Sessions that something is done with, one thing at a time.
  struct Underway {
    std::mutex mutex;
    std::condition_variable ended;
    std::set<std::string> ids;
  };
  class Alone;
  // A durable session from when it came here until it leaves.
  struct Life {
    SessionTicket ticket;
    uint64_t stored = 0;  // StreamSession::n_changes of what the store has
    bool new_here = false;
  };
  Handover(Store* store, const HandoverOptions& options) : store_(store), options_(options) {}
  Result<bool> Move(Host& host, const std::string& id, bool wait);
  Result<bool> TakeAlone(Host& host, const std::string& id);
  // Makes a taken session, which `keep_out` keeps from being used yet.
  Status Restore(Host& host, const std::string& id, const std::string& state, bool keep_out);
  void LostLease();
  Status StoreChanges(Host& host, const std::string& id, Life* life, bool* wrote, bool* mine);
  void Begin(const std::string& id);
  // `well`: everything that it did is in the store.
  void EndLife(const std::string& id, bool well);
  // Ends a session here that is another server's, or nobody knows whose.
  void Drop(Host& host, const std::string& id);
  // How a request of another life ended, and one that another server's write refused.
  ApiError ErrorOfEnded(SessionTicket ticket, bool reads) const;

  Store* const store_;
  const HandoverOptions options_;
  std::unique_ptr<Lease> lease_;
  std::unique_ptr<Ownership> owns_;
  std::unique_ptr<Underway> underway_ = std::make_unique<Underway>();
  mutable std::mutex mutex_;
  Host* host_ = nullptr;  // under mutex_, as is all below
  uint64_t n_lives_ = 0;
  std::map<std::string, Life> lives_;
  struct End {
    bool well = false;
    uint64_t n_stores = 0;
  };
  std::map<uint64_t, End> ended_;  // lives that ended lately
  std::set<std::string> held_;     // busy, because it is not known whether the store has them
};

}  // namespace weir
