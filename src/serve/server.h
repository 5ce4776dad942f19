// SPDX-License-Identifier: Apache-2.0
// `weir serve` as a library: the routes of docs/openapi.yaml over one host.
//
// The server connects the components: the host and its jobs, routes (serve/routes), keys, origins, bodies, handover,
// drain and the sweeper of idle sessions. None of them depends on the server.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/status.h"
#include "engine/loaded_model.h"
#include "serve/host.h"
#include "serve/server_options.h"

namespace weir {

class Server {
 public:
  // Makes the pots and binds the port, for which `make_way` frees it. `model` must outlive the server. The messages of
  // kInvalidArgument, kOverBudget and kIo say what to change.
  static Result<std::unique_ptr<Server>> Make(LoadedModel& model, ServerOptions options,
                                              const std::function<void()>& make_way = nullptr);
  ~Server();

  const Host& host() const;
  int port() const;
  // Graceful shutdown. With hand_over: refuses new work with 503 from now on, so that a proxy retries on another
  // server; work in progress gets `wait` to finish and is then cancelled (409 if it had already changed a session);
  // hands every session over. Without hand_over: does nothing. Any thread, before Stop().
  Status Drain(std::chrono::seconds wait);
  // Serves until Stop(), which any thread may call. Stop() cancels work in progress.
  Status Run();
  void Stop();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir
