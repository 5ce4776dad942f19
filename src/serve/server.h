// SPDX-License-Identifier: Apache-2.0
// `weir serve` as a library: the routes of docs/openapi.yaml over one host.
//
// This is where the rooms are put together: the host and its jobs, routes (serve/routes), keys, origins, bodies,
// handover, drain and the sweeper of idle sessions. None of them knows the server.
#pragma once

#include <chrono>
#include <memory>

#include "base/status.h"
#include "engine/loaded_model.h"
#include "serve/host.h"
#include "serve/server_options.h"

namespace weir {

class Server {
 public:
  // Makes the pots and binds the port. `model` outlives the server. kInvalidArgument, kOverBudget, kIo with what to
  // change.
  static Result<std::unique_ptr<Server>> Make(LoadedModel& model, ServerOptions options);
  ~Server();

  const Host& host() const;
  int port() const;
  // With hand_over: new work is refused with 503 from now on, so that a proxy asks another server; what runs may end
  // for so long and is then ended (409 where a session had begun with it); every session is handed over. Otherwise does
  // nothing. Any thread, before Stop().
  Status Drain(std::chrono::seconds wait);
  // Serves until Stop(), which any thread may call. Work that is under way is cancelled then.
  Status Run();
  void Stop();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir
