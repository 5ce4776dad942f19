// SPDX-License-Identifier: Apache-2.0
// What a server is made of.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "serve/completion_request.h"
#include "serve/handover.h"
#include "serve/host_options.h"
#include "serve/http_server.h"
#include "store/stores/store.h"

namespace weir {

struct ServerOptions {
  HostOptions host;
  HttpLimits http;
  std::string address = "127.0.0.1";
  int port = 8080;                    // 0: any free port
  std::vector<std::string> api_keys;  // a request must carry one of them; empty: no key is required
  bool public_metrics = false;        // /metrics needs no key
  std::vector<std::string> origins;   // origins of other sites' pages that may use the server (serve/origin.h)
  std::string folder;                 // of snapshots, or another store (store/stores/store.h); empty: no saving
  StoreOptions store_options;
  std::shared_ptr<Store> store;  // of `folder`, opened by Server::Make
  bool hand_over = false;        // sessions move through the store to other servers (serve/handover.h)
  HandoverOptions handover;      // with hand_over; its node is the host's
  // A session that no job works on and no request has named for this long ends: it is handed over, or deleted without
  // hand_over. 0: never.
  std::chrono::seconds session_idle{0};
  AnswerDefaults answers;
};

}  // namespace weir
