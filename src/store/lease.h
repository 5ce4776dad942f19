// SPDX-License-Identifier: Apache-2.0
// Who is alive among servers that share a store.
//
// A server has one lease, a note that it writes again and again, three times in the lease's time. All sessions it owns
// hang on it (store/ownership.h), so that a thousand sessions cost as much as one. Nobody compares clocks of machines:
// another server that wants a session reads its owner's lease, and if that is the same note after the lease's time, by
// its own clock, it revokes it. Revoking is a conditional write: either the owner's next renewal fails, and it knows
// that it has lost everything, or the revocation fails, and the owner is alive. An owner counts its lease from before
// it sent a renewal and stops an eighth earlier than others begin, so that what it says until then is true, as long as
// clocks run equally fast within an eighth. They need not show the same time. What an owner writes is safe in any case:
// the store refuses what is written under a token that is not the newest.
//
// CLOCK_BOOTTIME is used, which goes on while a process is stopped or a machine sleeps; not while a virtual machine is
// frozen by its host.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"
#include "store/stores/store.h"

namespace weir {

// Time since the machine started, sleep included.
std::chrono::milliseconds BootTime();

// This server's lease. Methods: any thread.
class Lease {
 public:
  static constexpr std::chrono::milliseconds kShortest{500};

  // Takes a lease and renews it until End(). `node` is shown to people and may be empty. Checks that the store keeps
  // conditions: kUnsupported for one that does not. `on_lost` runs, on a thread of its own, when another server has
  // revoked the lease: everything that hung on it is to be dropped before it returns; then a new one is taken.
  // REQUIRES: `store` outlives it. kInvalidArgument for a time below kShortest; kIo.
  static Result<std::unique_ptr<Lease>> Make(Store& store, const std::string& node, std::chrono::milliseconds time,
                                             std::function<void()> on_lost);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Names the lease that is held; another one after it was lost.
  std::string id() const;
  // Whether it still holds, so that nobody can own what hangs on it.
  bool Valid() const;
  // Gives it back: others need not wait for its end.
  void End();

 private:
  Lease(Store& store, std::string node, std::chrono::milliseconds time, std::function<void()> on_lost);
  // A new lease. kIo.
  Status Take();
  void Renew();
  std::string Text(int64_t n) const;

  Store& store_;
  const std::string node_;
  const std::chrono::milliseconds time_;
  const std::function<void()> on_lost_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string id_, version_;  // under mutex_, as are the next three
  std::chrono::milliseconds valid_until_{0};
  int64_t n_ = 0;
  bool ended_ = false;
  bool lost_ = false, dropped_ = false;  // of the thread alone: it is revoked; and on_lost_ has run to its end
  std::thread thread_;
};

// Watches the leases of others, as far as somebody asks.
class LeaseWatch {
 public:
  explicit LeaseWatch(Store& store) : store_(store) {}
  // Whether that lease has ended: given back, revoked, or not renewed for its time since it was first asked for, and
  // then revoked now. kIo.
  Result<bool> Ended(const std::string& id);

 private:
  struct Seen {
    std::string version;
    std::chrono::milliseconds since{0};
  };
  Store& store_;
  std::mutex mutex_;
  std::map<std::string, Seen> seen_;
};

}  // namespace weir
