// SPDX-License-Identifier: Apache-2.0
// What a server with --durable does around every request on a session: nothing is acknowledged before it is stored.
#pragma once

#include <cstdint>
#include <string>

#include "serve/api_error.h"

namespace weir {

class Host;

// Names a session as it is here, and how often it has been stored. life 0: it is not here, or nothing is kept.
struct SessionTicket {
  uint64_t life = 0, n_stores = 0;
};

class SessionKeeper {
 public:
  virtual ~SessionKeeper() = default;
  // For Settle(), when a request begins. A session that leaves and comes back has another life. Any thread.
  virtual SessionTicket Ticket(const std::string& id) const = 0;
  // Before the answer to a request on the session is sent. Ok (http 0): what the request did is stored, or left with
  // the session, and what it saw is no older than the session's newest state. Otherwise the answer must not be sent:
  // another server has the session and nothing of the request counts (503), or it is not known whether it does (409).
  // `ticket`: of the moment at which the request began; life 0: the request made the session. `reads`: it changed
  // nothing. May wait for the store. Any thread but the engine's.
  virtual ApiError Settle(Host& host, const std::string& id, SessionTicket ticket, bool reads) = 0;
  // A session was deleted here: the store forgets it, too. Errors of the store.
  virtual Status Deleted(const std::string& id) = 0;
};

}  // namespace weir
