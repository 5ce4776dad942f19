// SPDX-License-Identifier: Apache-2.0
#include "serve/loading_door.h"

#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "serve/http_server.h"
#include "serve/reply.h"

namespace weir {
namespace {

HttpLimits DoorLimits() {
  HttpLimits out;
  out.n_threads = 4;
  out.max_queued = 64;
  out.max_silent = 64;
  out.max_body_bytes = 1 << 16;
  out.request_timeout_s = 10;
  return out;
}

}  // namespace

class LoadingDoor::Impl {
 public:
  Impl() : http_(DoorLimits(), {[](std::string_view, std::string_view) { return false; }, [] { return false; }}) {
    // Before any of a body is read.
    http_.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
      const bool asks = request.method == "GET" || request.method == "HEAD";
      if (asks && request.path == "/livez") {
        SendJson({{"status", "ok"}}, response);
      } else {
        SendError({503, "loading", "the model is still being loaded; try again"}, response);
      }
      return httplib::Server::HandlerResponse::Handled;
    });
  }
  ~Impl() {
    if (!thread_.joinable()) return;
    while (!http_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    http_.Shutdown();
    thread_.join();
  }
  Status Open(const std::string& address, int port) {
    WEIR_ASSIGN_OR_RETURN(port_, http_.Bind(address, port));
    thread_ = std::thread([this] { http_.listen_after_bind(); });
    return Status();
  }
  int port() const { return port_; }

 private:
  HttpServer http_;
  int port_ = 0;
  std::thread thread_;
};

LoadingDoor::LoadingDoor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadingDoor::~LoadingDoor() = default;

Result<std::unique_ptr<LoadingDoor>> LoadingDoor::Open(const std::string& address, int port) {
  auto impl = std::make_unique<Impl>();
  WEIR_RETURN_IF_ERROR(impl->Open(address, port));
  return std::unique_ptr<LoadingDoor>(new LoadingDoor(std::move(impl)));
}

int LoadingDoor::port() const { return impl_->port(); }

}  // namespace weir
