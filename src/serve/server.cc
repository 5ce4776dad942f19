// SPDX-License-Identifier: Apache-2.0
#include "serve/server.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/answer_job.h"
#include "serve/api_keys.h"
#include "serve/body_reader.h"
#include "serve/cors.h"
#include "serve/drain.h"
#include "serve/handover.h"
#include "serve/idle_sweeper.h"
#include "serve/origin.h"
#include "serve/otlp_metrics.h"
#include "serve/reply.h"
#include "serve/request_trace.h"
#include "serve/router.h"

namespace weir {
namespace {

constexpr size_t kMaxPathBytes = 256;
// Whether a request carries a key, as clients of the one API or the other send it.
bool HasKey(const httplib::Request& request) {
  return request.has_header("Authorization") || request.has_header("x-api-key");
}

constexpr std::string_view kMethods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};

}  // namespace

class Server::Impl {
 public:
  using Request = httplib::Request;
  using Response = httplib::Response;

  explicit Impl(ServerOptions options)
      : options_(std::move(options)),
        keys_(options_.api_keys),
        origins_(options_.origins, keys_.any(), options_.address),
        routes_(AllRoutes()),
        router_(routes_),
        http_(options_.http, {[this](std::string_view method, std::string_view path) {
                                const RouteInfo* const route = router_.Find(method, path).route;
                                return route != nullptr && route->urgent;
                              },
                              [this] { return host_->scheduler().n_waiting() > 0; }}) {}

  ~Impl() {
    if (host_ == nullptr) return;
    // It asks the engine.
    if (OtlpExporter* const exporter = host_->telemetry().exporter(); exporter != nullptr) exporter->StopMetrics();
  }

  Status Start(LoadedModel& model, const std::function<void()>& make_way) {
    WEIR_ASSIGN_OR_RETURN(auto handover,
                          Handover::Make(options_.hand_over ? options_.store.get() : nullptr, options_.handover));
    WEIR_RETURN_IF_ERROR(DropMoved(*handover));
    WEIR_ASSIGN_OR_RETURN(host_, Host::Make(model, options_.host, &AnswerJob::AdvanceTogether));
    handover_ = std::move(handover);
    handover_->Attach(host_.get());
    drain_.emplace(*host_, *handover_, options_.folder);
    SetHandlers();
    if (OtlpExporter* const exporter = host_->telemetry().exporter(); exporter != nullptr) {
      exporter->StartMetrics([this] { return OtlpMetrics(*host_); });
    }
    if (make_way) make_way();
    WEIR_ASSIGN_OR_RETURN(port_, http_.Bind(options_.address, options_.port));
    return Status();
  }
  Status Run() {
    const IdleSweeper sweeper(*host_, *handover_, options_.session_idle);
    return http_.listen_after_bind() ? Status() : IoError("the server stopped listening");
  }
  void Stop() {
    host_->scheduler().Stop();
    host_->Hurry();  // readers of events go
    http_.Shutdown();
  }
  Status RunDrain(std::chrono::seconds wait) { return drain_->Run(wait); }
  const Host& host() const { return *host_; }
  int port() const { return port_; }

 private:
  // A server that was killed at the moment at which a session left has in its journal of webhooks what left with it.
  Status DropMoved(Handover& handover) const {
    if (options_.host.webhooks.queue.empty()) return Status();
    WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> sessions, handover.Left());
    if (sessions.empty()) return Status();
    WEIR_ASSIGN_OR_RETURN(WebhookQueue queue, WebhookQueue::Open(options_.host.webhooks.queue));
    for (const std::string& session : sessions) {
      for (const WebhookQueue::Event& event : queue.Of(session)) queue.Done(event.id);
    }
    return Status();
  }

  void SetHandlers() {
    http_.set_pre_routing_handler([this](const Request& request, Response& response) {
      Trace(request, response);
      if (AnswerOrigin(origins_, request, response)) return httplib::Server::HandlerResponse::Handled;
      const ApiError refused = Check(request);
      if (refused.http == 0) return httplib::Server::HandlerResponse::Unhandled;
      Refuse(request, refused, response);
      return httplib::Server::HandlerResponse::Handled;
    });
    const auto plain = [this](const Request& request, Response& response) { Dispatch(request, "", response); };
    const auto with_body = [this](const Request& request, Response& response, const httplib::ContentReader& read) {
      std::string body;
      if (const ApiError refused = ReadBody(request, read, options_.http.max_body_bytes, &body); refused.http != 0) {
        return Refuse(request, refused, response);
      }
      Dispatch(request, std::move(body), response);
    };
    // Patterns are regular expressions, which the library matches recursively; paths have been limited in length
    // before.
    http_.Get(".*", plain);
    http_.Options(".*", plain);
    http_.Post(".*", with_body);
    http_.Put(".*", with_body);
    http_.Patch(".*", with_body);
    http_.Delete(".*", with_body);
    http_.set_error_handler([](const Request&, Response& response) {
      if (!response.body.empty()) return;
      response.set_content(JsonText(OfHttp(response.status).Body()) + "\n", "application/json");
    });
    http_.set_exception_handler([](const Request&, Response& response, std::exception_ptr) {
      SendError({500, "internal", "the request failed"}, response);
    });
  }

  // Runs before any of the body is read. http 0: continue.
  ApiError Check(const Request& request) const {
    if (request.path.size() > kMaxPathBytes) return OfHttp(414);
    if (std::find(std::begin(kMethods), std::end(kMethods), request.method) == std::end(kMethods)) {
      return {405, "", "this method is not supported"};
    }
    if (const ApiError framing = CheckFraming(request); framing.http != 0) return framing;
    const KeyRule rule = router_.KeyOf(request.path);
    if (rule == KeyRule::kNever) return {0, "", ""};
    const bool is_public = options_.public_metrics && request.path == "/metrics";
    const bool needs_key = (rule == KeyRule::kAlways && !is_public) || HasKey(request);
    const std::string key = request.has_header("Authorization") ? request.get_header_value("Authorization")
                                                                : "Bearer " + request.get_header_value("x-api-key");
    if (keys_.any() && needs_key && !keys_.Accept(key)) {
      return {
          401, "invalid_api_key",
          "the request needs the header 'Authorization: Bearer KEY', or 'x-api-key: KEY', with a key of the server"};
    }
    return origins_.Check(request.get_header_value("Origin"), request.get_header_value("Host"));
  }

  // Refuses a request before its route has seen it, in the words of the route's API.
  void Refuse(const Request& request, const ApiError& error, Response& response) {
    SendError(error, response);
    if (const RouteInfo* const route = router_.Find(request.method, request.path).route; route != nullptr) {
      Reword(*route, response);
    }
    CountOther(response);
  }

  // An error in the words of the route's API.
  static void Reword(const RouteInfo& route, Response& response) {
    if (route.error_body == nullptr || response.status < 400) return;
    response.body = JsonText(route.error_body(ErrorOfBody(response.status, response.body))) + "\n";
  }

  void Dispatch(const Request& request, std::string body, Response& response) {
    Router::Match match = router_.Find(request.method, request.path);
    if (match.route == nullptr) {
      if (match.allowed.empty()) {
        SendError(NotServed(request.path), response);
      } else {
        response.set_header("Allow", match.allowed);
        SendError({405, "", "this address only takes " + match.allowed}, response);
      }
      return CountOther(response);
    }
    const RouteInfo& route = *match.route;
    bool refused = false;
    const std::string session = route.of_session() ? match.arguments[0] : "";
    RequestScope* const scope = Scope();
    if (scope != nullptr) scope->SetName(std::string(route.method) + " " + route.path, /*http=*/true);
    drain_->Handle(route, {*host_, options_, request, std::move(body), std::move(match.arguments)}, response, &refused);
    Reword(route, response);
    // Proxies send what belongs to a session to the server that has it.
    if (route.of_session() && response.status < 400 && !response.has_header("x-session-id")) {
      response.set_header("x-session-id", session);
    }
    // The library fills in the status of a success only after this.
    const int http = response.status < 0 ? 200 : response.status;
    if (scope != nullptr) {
      scope->SetSession(route.of_session() ? session : response.get_header_value("x-session-id"));
      scope->SetStatus(http);
    }
    if (refused) return host_->metrics().CountRequest("other", http);
    host_->metrics().CountRequest(std::string(route.method) + " " + route.path, http);
  }

  // Counts requests without a route under one label: their paths are client input and must not become labels.
  void CountOther(const Response& response) {
    if (RequestScope* const scope = Scope(); scope != nullptr) scope->SetStatus(response.status);
    host_->metrics().CountRequest("other", response.status);
  }

  // The trace of the request that this thread handles; nullptr: nobody wants it.
  static RequestScope* Scope() { return static_cast<RequestScope*>(HttpConnection::Current()->kept()); }

  void Trace(const Request& request, Response& response) {
    if (!host_->telemetry().on()) return;
    // Probes and scrapers come every few seconds, and are no work.
    const RouteInfo* const route = router_.Find(request.method, request.path).route;
    if (route != nullptr && (route->urgent || route->when_draining)) return;
    std::optional<TraceContext> from;
    if (request.get_header_value_count("traceparent") == 1) {
      from = ParseTraceParent(request.get_header_value("traceparent"));
    }
    if (from) {
      std::string state;
      for (size_t i = 0; i < request.get_header_value_count("tracestate"); ++i) {
        state += (i == 0 ? "" : ",") + request.get_header_value("tracestate", i);
      }
      from->state = ParseTraceState(state);
    }
    const auto scope = std::make_shared<RequestScope>(host_->telemetry(), "other", from);
    response.set_header("traceresponse", TraceParentText(scope->trace()->context()));
    HttpConnection::Current()->Keep(scope);
  }

  const ServerOptions options_;
  const ApiKeys keys_;
  const OriginRules origins_;
  const std::vector<const RouteInfo*> routes_;
  const Router router_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<Handover> handover_;
  std::optional<weir::Drain> drain_;
  HttpServer http_;
  int port_ = 0;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::Make(LoadedModel& model, ServerOptions options,
                                             const std::function<void()>& make_way) {
  options.host.snapshots = options.folder;
  options.handover.node = options.host.node;
  if (!options.folder.empty() && options.store == nullptr) {
    WEIR_ASSIGN_OR_RETURN(const StoreInfo* const info, StoreOf(options.folder));
    WEIR_ASSIGN_OR_RETURN(options.store, info->open(options.folder, options.store_options));
    // One call a request, one for each session that leaves, and those of the sweeper and the lease.
    const int64_t n_calls = options.http.n_threads + static_cast<int64_t>(kSessionsLeavingAtOnce) + 2;
    options.host.store_bytes = n_calls * info->bytes_a_call;
  }
  auto impl = std::make_unique<Impl>(std::move(options));
  WEIR_RETURN_IF_ERROR(impl->Start(model, make_way));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const Host& Server::host() const { return impl_->host(); }
int Server::port() const { return impl_->port(); }
Status Server::Drain(std::chrono::seconds wait) { return impl_->RunDrain(wait); }
Status Server::Run() { return impl_->Run(); }
void Server::Stop() { impl_->Stop(); }

}  // namespace weir
