// SPDX-License-Identifier: Apache-2.0
// Makes a stream session and reads its beginning.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "serve/api_error.h"
#include "serve/host.h"
#include "serve/server_options.h"

namespace weir {

struct NewSession {
  std::string id;      // empty: a new one
  std::string policy;  // empty: the server's
  int64_t pot = 0;     // 0: the server's
  std::string system;  // empty: none
  bool pin_system = true;
  int n_waiting = 0;                  // frames of a live video that may wait; 0: no live video
  std::optional<std::string> recall;  // nullopt: the server's
  int64_t recall_disk = 0, recall_tokens = 0;
  int64_t rule_tokens = 0;  // SessionOptions::aside_slots; 0: no rules
};

// http 0: *state is the new session, as SessionJson() shows it. Otherwise there is none. `wanted` returns false when
// nobody waits for it any longer. Any thread but the engine's.
ApiError MakeSession(Host& host, const ServerOptions& options, const NewSession& wish,
                     const std::function<bool()>& wanted, Json* state);

}  // namespace weir
