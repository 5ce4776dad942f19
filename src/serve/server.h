// `weir serve` as a library: the routes of docs/openapi.yaml over one host.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/loaded_model.h"
#include "serve/host.h"
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

// A method and a path as docs/openapi.yaml writes it.
struct Route {
  const char* method;
  const char* path;
};
std::span<const Route> AllRoutes();

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
