// SPDX-License-Identifier: Apache-2.0
// The HTTP library with our own limits around it.
//
// cpp-httplib gives each connection a thread and reads headers and chunked bodies of any length. Here a connection
// carries one request, and gets a thread when its head has arrived (serve/waiting_room.h). Its bytes and its time,
// from the moment it was accepted, are limited before anything parses them, and requests beyond the capacity of the
// threads get 503 at once. While others wait, a client that stops in the middle of its body or takes nothing of its
// answer is given up early. A handler can check whether its client is still connected, and counts the bytes of its
// request against a limit for all requests together.
#pragma once

#include <httplib.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "serve/waiting_room.h"

namespace weir {

struct HttpLimits {
  int n_threads = 64;    // requests at once
  int max_queued = 256;  // requests that wait for a thread
  // Connections that have not sent a whole head, and as many that have been answered and still end; 0: up to 1024, both
  // within half of the files that the process may still open.
  int max_silent = 0;
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
  // Of what all requests may hold, for a connection that holds more and less in the course of time.
  Ledger& bodies() const { return bodies_; }
  // The handler's answer is not sent. Once it has returned, `speak` has the connection, on the same thread; `early` are
  // bytes that came after the request.
  void TakeOver(std::function<void(int socket, std::string early)> speak) { speak_ = std::move(speak); }
  // Keeps something of the request until its answer, streamed or not, has been sent.
  void Keep(std::shared_ptr<void> thing) { kept_ = std::move(thing); }
  void* kept() const { return kept_.get(); }
  bool taken_over() const { return speak_ != nullptr; }
  // nullptr outside a handler.
  static HttpConnection* Current();
  // Runs what handles the request of a connection. `bodies`: the limit of Take().
  // `handler` returns what of the connection's bytes it has not read.
  static void Handle(int socket, Ledger& bodies, const std::function<std::string()>& handler);

 private:
  HttpConnection(int socket, Ledger& bodies) : socket_(socket), bodies_(bodies) {}
  const int socket_;
  Ledger& bodies_;
  std::vector<Reservation> taken_;
  std::function<void(int, std::string)> speak_;
  std::shared_ptr<void> kept_;
};

class HttpServer : public httplib::Server {
 public:
  struct Rules {
    // Whether a request ("GET", "/health") is answered even while every thread is busy. It must not wait for anything.
    std::function<bool(std::string_view method, std::string_view path)> urgent;
    // Whether requests wait for something that others hold, besides threads. Any thread.
    std::function<bool()> crowded;
  };
  HttpServer(const HttpLimits& limits, Rules rules);
  // Binds to a port, 0 for any free one, and returns it. kIo if that fails.
  Result<int> Bind(const std::string& address, int port);
  // Stops listening and ends everything that waits for a client. Does nothing before the server listens. Any thread,
  // any number of times.
  void Shutdown();

 private:
  bool process_and_close_socket(socket_t socket) override;
  void Answer(WaitingRoom::Arrival arrival);

  const HttpLimits limits_;
  const Rules rules_;
  Ledger bodies_;
  std::atomic<bool> stopping_{false};
  std::unique_ptr<WaitingRoom> room_;  // while it listens
};

}  // namespace weir
