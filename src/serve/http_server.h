// SPDX-License-Identifier: Apache-2.0
// The HTTP library with our own limits around it.
//
// cpp-httplib gives each connection a thread and reads headers and chunked bodies of any length. Here a connection
// carries one request (no idle connection holds a thread), its bytes and its time are limited before anything parses
// them, and connections beyond the capacity of the threads get 503 at once. A handler can check whether its client is
// still connected, and counts the bytes of its request against a limit for all requests together.
#pragma once

#include <httplib.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"

namespace weir {

struct HttpLimits {
  int n_threads = 64;    // requests at once
  int max_queued = 256;  // connections that wait for a thread
  int64_t max_head_bytes = 1 << 16;
  int64_t max_body_bytes = 8 << 20;
  // Limit of HttpConnection::Take() for all requests together; 0: four of the largest bodies, at least 32 MiB.
  int64_t max_bodies_bytes = 0;
  int request_timeout_s = 60;  // to receive a whole request
  int write_timeout_s = 30;    // for the client to accept more of an answer
};

// The connection of the request that this thread handles.
class HttpConnection {
 public:
  // False if the client closed its side or the connection broke.
  bool Alive() const;
  // Counts bytes that this request holds until its answer (streamed or not) is sent. kOverBudget if all requests
  // together would hold more than HttpLimits::max_bodies_bytes, kInvalidArgument if this one alone would.
  Status Take(int64_t bytes);
  // nullptr outside a handler.
  static HttpConnection* Current();

 private:
  friend class HttpServer;
  HttpConnection(int socket, Ledger& bodies) : socket_(socket), bodies_(bodies) {}
  const int socket_;
  Ledger& bodies_;
  std::vector<Reservation> taken_;
};

class HttpServer : public httplib::Server {
 public:
  explicit HttpServer(const HttpLimits& limits);
  // Binds to a port, 0 for any free one, and returns it. kIo if that fails.
  Result<int> Bind(const std::string& address, int port);
  // Stops listening and ends everything that waits for a client. Does nothing before the server listens. Any thread,
  // any number of times.
  void Shutdown();

 private:
  bool process_and_close_socket(socket_t socket) override;

  const HttpLimits limits_;
  Ledger bodies_;
  std::atomic<bool> stopping_{false};
};

}  // namespace weir
