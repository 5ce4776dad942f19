// SPDX-License-Identifier: Apache-2.0
// A session over a WebSocket: frames and questions go in, answers and events come out, side by side.
//
// Binary messages are frames of the session's live video: eight bytes of time in ms, least first, and a picture. Text
// messages are JSON: requests, which are done in their order, and what they come to (docs/server.md has them all).
// Nothing of it waits for the client: requests and frames that are too many are refused and dropped, events that it
// does not take in time are missed and counted, and a client that takes nothing is given up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/json.h"
#include "serve/event_ring.h"
#include "serve/frame_queue.h"
#include "serve/host.h"
#include "serve/server_options.h"
#include "serve/web_socket.h"

namespace weir {

struct SocketSession {
  std::string id;
  Json state;                          // as SessionJson()
  std::shared_ptr<EventRing> ring;     // nullptr: it has no rules
  std::shared_ptr<FrameQueue> frames;  // nullptr: it has no live video
  int64_t last_event = 0;              // id of the last event that the client has
};

// Until the client, the session or the server ends it.
void RunSessionSocket(Host& host, const ServerOptions& options, WebSocket& socket, SocketSession session);

}  // namespace weir
