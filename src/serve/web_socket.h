// SPDX-License-Identifier: Apache-2.0
// One WebSocket connection (RFC 6455), on the thread of its request. It knows nothing of sessions.
//
// Framing, masks, fragments, UTF-8 of texts, pings and the closing handshake are the library's (Boost.Beast). Here are
// the limits: a message has a largest size and its bytes are reserved while they come; one message is sent at a time,
// and a client that does not take it, or is not heard of, is given up.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "serve/api_error.h"
#include "serve/http_server.h"

namespace weir {

class WebSocket {
 public:
  struct Limits {
    int64_t max_message = 8 << 20;   // bytes
    std::chrono::seconds write{30};  // for the client to take a message
    std::chrono::seconds idle{60};   // without a sign of the client, which is asked for one after half of it
  };
  struct Message {
    bool binary = false;
    std::string bytes;
    std::vector<Reservation> room;  // of the ledger, for `bytes`
  };
  // Why a connection ends, as the client is told.
  enum class Why : uint16_t { kDone = 1000, kGoingAway = 1001, kPolicy = 1008, kTooBig = 1009, kTryLater = 1013 };

  // http 0 for a request that asks for a WebSocket; 501 in a build without the library.
  static ApiError Check(const httplib::Request& request);
  // Answers the request on its socket, which stays the caller's to close. `ledger` outlives the connection. kIo if the
  // client is gone. REQUIRES: Check() had no error, and nothing was sent on the socket.
  static Result<std::unique_ptr<WebSocket>> Accept(int socket, const httplib::Request& request, const Limits& limits,
                                                   Ledger& ledger);
  virtual ~WebSocket() = default;

  enum class Heard { kNothing, kMessage, kGone };
  // Sends and receives for up to `wait`, or until a whole message has come. kGone: it is over, for any reason.
  virtual Heard Next(std::chrono::milliseconds wait, Message* message) = 0;
  // A message is under way: Send() has to wait.
  virtual bool sending() const = 0;
  // REQUIRES: !sending().
  virtual void Send(std::string text) = 0;
  // Tells the client and waits a moment for its answer. Nothing may follow.
  virtual void Close(Why why, std::string_view words) = 0;
};

}  // namespace weir
