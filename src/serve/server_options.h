// SPDX-License-Identifier: Apache-2.0
// What a server is made of.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "serve/host_options.h"
#include "serve/http_server.h"
#include "serve/openai_request.h"

namespace weir {

struct ServerOptions {
  HostOptions host;
  HttpLimits http;
  std::string address = "127.0.0.1";
  int port = 8080;                    // 0: one that is free
  std::vector<std::string> api_keys;  // a request brings one of them; none: no key is asked for
  std::vector<std::string> origins;   // of pages of other sites that may use the server (serve/origin.h)
  std::string folder;                 // of snapshots; empty: no saving, no restoring
  bool hand_over = false;             // sessions move through `folder` to other servers (serve/handover.h)
  // A session that nothing works on and no request named for so long ends: handed over, without hand_over deleted. 0:
  // never.
  std::chrono::seconds session_idle{0};
  AnswerDefaults answers;
};

}  // namespace weir
