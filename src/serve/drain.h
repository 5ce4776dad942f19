// SPDX-License-Identifier: Apache-2.0
// The graceful shutdown of a server that hands its sessions over (serve/handover.h), and what requests see of it.
//
// A server that is not shutting down takes over, before a request on a session, a session that another server left in
// the folder. One that is shutting down ("draining") hands the session over before it refuses the request with 503: a
// client or a proxy that asks another server then finds the session there.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "serve/api_error.h"
#include "serve/handover.h"
#include "serve/routes/route.h"

namespace weir {

class Drain {
 public:
  // All of them outlive it. `folder`: of snapshots; it is left out of messages. Without an enabled `handover` nothing
  // here does anything.
  Drain(Host& host, const Handover& handover, std::string folder)
      : host_(host), handover_(handover), folder_(std::move(folder)) {}

  // Answers a request of a route, or refuses it with 503. Any thread.
  void Handle(const RouteInfo& route, const Call& call, httplib::Response& response, bool* refused);

  // From now on requests are refused. Work that is under way may end for so long and is then cancelled (409 where a
  // session had begun with it); every session is handed over. Returns when that is done: ok, or why some session could
  // not be. Any thread.
  Status Run(std::chrono::seconds wait);

 private:
  // What a request has to be told instead of its answer; http 0: nothing. Moves the session that it is about.
  ApiError Move(const RouteInfo& route, const Call& call);
  // Looks at the answer of a request on a session once more: the session may have been moved meanwhile.
  void Correct(const RouteInfo& route, const Call& call, httplib::Response& response);
  // Hands over what nothing works on; `busy`: something works on others. With `wait` they are waited for, and follow.
  Status LeaveAll(bool wait, bool* busy);

  Host& host_;
  const Handover& handover_;
  const std::string folder_;
  std::atomic<bool> draining_{false};
  std::atomic<int> n_inside_{0};  // requests whose handlers run
};

}  // namespace weir
