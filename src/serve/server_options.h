// SPDX-License-Identifier: Apache-2.0
// What a server is made of.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "serve/completion_request.h"
#include "serve/host_options.h"
#include "serve/http_server.h"

namespace weir {

struct ServerOptions {
  HostOptions host;
  HttpLimits http;
  std::string address = "127.0.0.1";
  int port = 8080;                    // 0: any free port
  std::vector<std::string> api_keys;  // a request must carry one of them; empty: no key is required
  bool public_metrics = false;        // /metrics needs no key
  std::vector<std::string> origins;   // origins of other sites' pages that may use the server (serve/origin.h)
  std::string folder;                 // snapshot folder; empty: no saving, no restoring
  bool hand_over = false;             // sessions move through `folder` to other servers (serve/handover.h)
  // A session that no job works on and no request has named for this long ends: it is handed over, or deleted without
  // hand_over. 0: never.
  std::chrono::seconds session_idle{0};
  AnswerDefaults answers;
};

}  // namespace weir
