// SPDX-License-Identifier: Apache-2.0
// The HTTP library with limits of our own around it.
//
// cpp-httplib gives each connection a thread and reads heads and chunked bodies of any length. Here a connection
// carries one request (no idle connection holds a thread), its bytes and its time are limited before anything parses
// them, and connections beyond what the threads carry are answered 503 at once. A handler can ask whether its client is
// still there, and counts the bytes that its request brings against what all of them may bring together.
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
  // That HttpConnection::Take() gives to all requests together; 0: four of the largest bodies, 32 MiB at least.
  int64_t max_bodies_bytes = 0;
  int request_timeout_s = 60;  // for a whole request to arrive
  int write_timeout_s = 30;    // for the client to take some of an answer
};

// The connection of the request that this thread handles.
class HttpConnection {
 public:
  // False when the client closed its side, or the connection broke.
  bool Alive() const;
  // Counts bytes that this request holds until its answer is sent, streams included. kOverBudget when all requests
  // together would hold more than HttpLimits::max_bodies_bytes, kInvalidArgument when this one alone would.
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
  // Listens on a port, 0 for one that is free, and returns it. kIo when that cannot be.
  Result<int> Bind(const std::string& address, int port);
  // Ends listening and whatever waits for a client. Does nothing before the server listens. Any thread, any number of
  // times.
  void Shutdown();

 private:
  bool process_and_close_socket(socket_t socket) override;

  const HttpLimits limits_;
  Ledger bodies_;
  std::atomic<bool> stopping_{false};
};

}  // namespace weir
