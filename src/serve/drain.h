// SPDX-License-Identifier: Apache-2.0
// The graceful shutdown of a server that hands its sessions over (serve/handover.h), and what requests see of it.
//
// A server that is not shutting down takes over, before a request on a session, a session that another server left in
// the folder. One that is shutting down ("draining") hands the session over before it refuses the request with 503: a
// client or a proxy that asks another server then finds the session there. What a request did is stored before it is
// answered, where the server keeps its sessions (serve/session_keeper.h).
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "serve/api_error.h"
#include "serve/handover.h"
#include "serve/routes/route.h"

namespace weir {

inline constexpr size_t kSessionsLeavingAtOnce = 8;

class Drain {
 public:
  // All arguments must outlive it. `folder`: the snapshot folder, which is removed from messages. Without an enabled
  // `handover` this class does nothing.
  Drain(Host& host, Handover& handover, std::string folder)
      : host_(host), handover_(handover), folder_(std::move(folder)) {}

  // Answers a request of a route, or refuses it with 503. Any thread.
  void Handle(const RouteInfo& route, const Call& call, httplib::Response& response, bool* refused);

  // Refuses requests from now on. Work in progress gets `wait` to finish and is then cancelled (409 if it had already
  // changed a session); every session is handed over. Returns when all that is done: ok, or why a session could not be
  // handed over. Any thread.
  Status Run(std::chrono::seconds wait);

 private:
  // Moves the session that a request works on; empty: none. Returns the error to send instead of an answer; http 0:
  // none.
  ApiError Move(const std::string& session);
  // Corrects the answer of a request on a session if the session was moved in the meantime.
  void Correct(const std::string& session, httplib::Response& response);
  // Hands over all idle sessions; sets `busy` if jobs work on others. With `wait` it waits for those and hands them
  // over too.
  Status LeaveAll(bool wait, bool* busy);

  Host& host_;
  Handover& handover_;
  const std::string folder_;
  std::atomic<bool> draining_{false};
  std::atomic<int> n_inside_{0};  // requests whose handlers are running
};

}  // namespace weir
