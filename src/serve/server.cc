#include "serve/server.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "serve/api.h"
#include "serve/handover.h"
#include "serve/origin.h"

namespace weir {
namespace {

constexpr RouteEntry kRoutes[] = {
    {{"GET", "/"}, &Api::Page},
    {{"GET", "/health"}, &Api::Health},
    {{"GET", "/props"}, &Api::Props},
    {{"GET", "/metrics"}, &Api::MetricsText},
    {{"GET", "/v1/models"}, &Api::Models},
    {{"GET", "/v1/models/{model}"}, &Api::Model},
    {{"POST", "/tokenize"}, &Api::Tokenize},
    {{"POST", "/detokenize"}, &Api::Detokenize},
    {{"POST", "/apply-template"}, &Api::ApplyTemplate},
    {{"POST", "/v1/chat/completions"}, &Api::Chat},
    {{"POST", "/v1/completions"}, &Api::Completion},
    {{"GET", "/v1/sessions"}, &Api::ListSessions},
    {{"POST", "/v1/sessions"}, &Api::CreateSession},
    {{"POST", "/v1/sessions/restore"}, &Api::RestoreSession},
    {{"GET", "/v1/sessions/{id}"}, &Api::GetSession},
    {{"DELETE", "/v1/sessions/{id}"}, &Api::DeleteSession},
    {{"GET", "/v1/sessions/{id}/held"}, &Api::GetHeld},
    {{"POST", "/v1/sessions/{id}/append"}, &Api::Append},
    {{"POST", "/v1/sessions/{id}/ask"}, &Api::Ask},
    {{"POST", "/v1/sessions/{id}/fork"}, &Api::Fork},
    {{"POST", "/v1/sessions/{id}/save"}, &Api::SaveSession},
};
constexpr size_t kMaxPathBytes = 256;
// Of each body, so many bytes are not counted among those of all requests: what is usual is answered while large ones
// fill them.
constexpr int64_t kUncountedBytes = 1 << 16;

// The other names that llama-server has for what is served here under one. Its /completions is no such name: it answers
// in a shape of its own.
std::string_view CanonicalPath(std::string_view path) {
  if (path == "/chat/completions") return "/v1/chat/completions";
  if (path == "/models") return "/v1/models";
  if (path == "/v1/health") return "/health";
  return path;
}

// Whether a path is what a route's pattern describes; fills in what stands for its {names}.
bool Matches(std::string_view pattern, std::string_view path, std::vector<std::string>* arguments) {
  arguments->clear();
  while (!pattern.empty() && !path.empty()) {
    const std::string_view want = pattern.substr(0, pattern.find('/', 1)), have = path.substr(0, path.find('/', 1));
    if (want.starts_with("/{")) {
      if (have.size() < 2) return false;
      arguments->emplace_back(have.substr(1));
    } else if (want != have) {
      return false;
    }
    pattern.remove_prefix(want.size());
    path.remove_prefix(have.size());
  }
  return pattern.empty() && path.empty();
}

// As long for a wrong key as for a right one.
bool SameSecret(std::string_view a, std::string_view b) {
  unsigned char differ = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  return differ == 0;
}

const char* ReasonOf(int http) {
  switch (http) {
    case 400:
      return "the request is malformed";
    case 404:
      return "there is no such page";
    case 413:
      return "the body is larger than --max-body allows";
    case 414:
      return "the address is too long";
    case 416:
      return "ranges are not served";
  }
  return "the request failed";
}

// What clients of other servers ask for, and what there is instead.
const char* ReasonNotServed(std::string_view path) {
  constexpr std::pair<std::string_view, const char*> kElsewhere[] = {
      {"/v1/embeddings", "this server writes text and makes no embeddings"},
      {"/embedding", "this server writes text and makes no embeddings"},
      {"/v1/responses", "there is no such page; ask /v1/chat/completions"},
      {"/v1/messages", "there is no such page; ask /v1/chat/completions"},
      {"/completion", "there is no such page; ask /v1/completions"},
      {"/completions", "there is no such page; ask /v1/completions"},
      {"/infill", "this server fills in no text; ask /v1/completions"},
      {"/slots", "there is no such page; /v1/sessions lists what is held, /metrics what is busy"},
  };
  for (const auto& [other, reason] : kElsewhere) {
    if (path == other) return reason;
  }
  return ReasonOf(404);
}

}  // namespace

std::span<const RouteEntry> RouteTable() { return kRoutes; }

std::span<const Route> AllRoutes() {
  static const std::vector<Route> routes = [] {
    std::vector<Route> out;
    for (const RouteEntry& entry : kRoutes) out.push_back(entry.route);
    return out;
  }();
  return routes;
}

void SendJsonText(std::string text, httplib::Response& response, int http) {
  response.status = http;
  response.set_content("", 0, "application/json");
  response.body = std::move(text);  // not copied: answers may be large
}

void SendJson(const Json& json, httplib::Response& response, int http) {
  SendJsonText(JsonText(json) + "\n", response, http);
}

void SendError(const ApiError& error, httplib::Response& response) {
  if (error.http == 429) response.set_header("Retry-After", "1");
  SendJson(error.Body(), response, error.http);
}

class Server::Impl {
 public:
  using Request = httplib::Request;
  using Response = httplib::Response;

  explicit Impl(ServerOptions options)
      : options_(std::move(options)),
        origins_(options_.origins, !options_.api_keys.empty(), options_.address),
        http_(options_.http) {}

  Status Start(LoadedModel& model) {
    WEIR_ASSIGN_OR_RETURN(host_, Host::Make(model, options_.host));
    WEIR_ASSIGN_OR_RETURN(Handover handover, Handover::Make(options_.hand_over ? options_.folder : std::string()));
    handover_.emplace(std::move(handover));
    api_ = std::make_unique<Api>(*host_, options_);
    SetHandlers();
    WEIR_ASSIGN_OR_RETURN(port_, http_.Bind(options_.address, options_.port));
    return Status();
  }
  Status Run() {
    std::atomic<bool> ended{false};
    std::thread ending_idle;
    if (options_.session_idle.count() > 0) {
      ending_idle = std::thread([&] {
        for (auto next = std::chrono::steady_clock::now(); !ended; std::this_thread::sleep_for(kLook)) {
          if (std::chrono::steady_clock::now() < next) continue;
          EndIdle();
          next = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        }
      });
    }
    const bool listened = http_.listen_after_bind();
    ended = true;
    if (ending_idle.joinable()) ending_idle.join();
    return listened ? Status() : IoError("the server stopped listening");
  }
  void Stop() {
    host_->scheduler().Stop();
    http_.Shutdown();
  }
  Status Drain(std::chrono::seconds wait) {
    if (!handover_->enabled()) return Status();
    draining_ = true;
    // Work that takes too long is ended from beside: a session is handed over when nothing works on it.
    const auto end = std::chrono::steady_clock::now() + wait;
    std::atomic<bool> left{false};
    std::thread watch([&] {
      while (!left && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kLook);
      host_->Hurry();
    });
    // Requests that came before may still make sessions, or take them over: the last look is after the last of them. An
    // answer that is streamed goes on when its request is no longer counted.
    Status status;
    for (bool last = false; !last;) {
      const bool over = std::chrono::steady_clock::now() >= end, quiet = n_inside_ == 0;
      bool busy = false;
      status = LeaveAll(over, &busy);
      last = over || (quiet && !busy);
      if (!last) std::this_thread::sleep_for(status.ok() ? kLook : kTryAgain);
    }
    // Chats have no session to move; they may end, too.
    while (std::chrono::steady_clock::now() < end &&
           (host_->scheduler().n_running() + host_->scheduler().n_waiting())) {
      std::this_thread::sleep_for(kLook);
    }
    left = true;
    watch.join();
    return status;
  }
  const Host& host() const { return *host_; }
  int port() const { return port_; }

 private:
  static constexpr std::chrono::milliseconds kLook{20};
  static constexpr std::chrono::milliseconds kTryAgain{1000};  // to write what could not be written
  // Counts a request for as long as its handler runs.
  class Inside {
   public:
    explicit Inside(std::atomic<int>& n) : n_(n) { ++n_; }
    ~Inside() { --n_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    std::atomic<int>& n_;
  };
  void SetHandlers() {
    http_.set_pre_routing_handler([this](const Request& request, Response& response) {
      if (TellOrigin(request, response)) return httplib::Server::HandlerResponse::Handled;
      const ApiError refused = Check(request);
      if (refused.http == 0) return httplib::Server::HandlerResponse::Unhandled;
      SendError(refused, response);
      Count(request, response.status);
      return httplib::Server::HandlerResponse::Handled;
    });
    const auto plain = [this](const Request& request, Response& response) { Dispatch({request, "", {}}, response); };
    const auto with_body = [this](const Request& request, Response& response, const httplib::ContentReader& read) {
      Call call{request, "", {}};
      if (const ApiError refused = ReadBody(request, read, &call.body); refused.http != 0) {
        SendError(refused, response);
        return Count(request, response.status);
      }
      Dispatch(std::move(call), response);
    };
    // Patterns are expressions, which the library matches by recursion: paths are short by now.
    http_.Get(".*", plain);
    http_.Options(".*", plain);
    http_.Post(".*", with_body);
    http_.Put(".*", with_body);
    http_.Patch(".*", with_body);
    http_.Delete(".*", with_body);
    http_.set_error_handler([](const Request&, Response& response) {
      if (!response.body.empty()) return;
      const int http = response.status;
      response.set_content(JsonText(ApiError{http, "", ReasonOf(http)}.Body()) + "\n", "application/json");
    });
    http_.set_exception_handler([](const Request&, Response& response, std::exception_ptr) {
      SendError({500, "internal", "the request failed"}, response);
    });
  }

  // Hands over what nothing works on; `busy`: something works on others. With `wait` they are waited for, and follow.
  Status LeaveAll(bool wait, bool* busy) {
    std::vector<std::string> ids, others;
    Status status = host_->Call([&] {
      for (const auto& [id, stream] : host_->sessions()) ids.push_back(id);
      return Status();
    });
    for (const std::string& id : ids) {
      const auto left = handover_->LeaveIdle(*host_, id);
      if (!left.ok()) {
        status = left.status();
      } else if (!*left) {
        others.push_back(id);
      }
    }
    *busy = !others.empty();
    if (!wait) return status;
    for (const std::string& id : others) {
      if (const Status one = handover_->Leave(*host_, id); !one.ok()) status = one;
    }
    return status;
  }

  // Sessions that nobody uses give their bytes back, one after another: others get their turn in between.
  void EndIdle() {
    bool found = true;
    const auto end_one = [&] {
      StreamSession* const stream = host_->FindIdle(options_.session_idle);
      found = stream != nullptr;
      if (!found) return Status();
      if (handover_->enabled() && !handover_->Write(*host_, *stream).ok()) {
        stream->used_at = std::chrono::steady_clock::now();  // kept, and tried again when it was idle once more
        return Status();
      }
      host_->metrics().CountExpired();
      host_->Erase(stream->id);
      return Status();
    };
    while (found && host_->Call(end_one).ok()) {
    }
  }

  static bool IsOfSession(std::string_view path) { return path.starts_with("/v1/sessions/{id}"); }
  static ApiError Draining() { return {503, "draining", "this server is about to end; ask again"}; }

  // A server that drains refuses, after the session in question was handed over, so that who asks again elsewhere finds
  // it there; one that does not takes over what it lacks. http 0: go on.
  ApiError Move(const Call& call, std::string_view path) {
    if (!handover_->enabled()) return {0, "", ""};
    const bool of_session = IsOfSession(path);
    if (draining_) {
      const Status left = of_session ? handover_->Leave(*host_, call.arguments[0]) : Status();
      // Cancelled: the engine has stopped, and every session was handed over before that.
      if (left.ok() || left.code() == StatusCode::kCancelled) return Draining();
      return FromStatus(WithoutFolder(left, options_.folder));
    }
    if (!of_session) return {0, "", ""};
    const auto taken = handover_->Take(*host_, call.arguments[0]);
    return taken.ok() ? ApiError{0, "", ""} : FromStatus(WithoutFolder(taken.status(), options_.folder));
  }

  // What a drain did to a request that had come before it. A session that was handed over meanwhile is missing here,
  // but not everywhere. Work that was stopped is answered when its session can be found elsewhere, and nobody is told
  // to ask again for what was begun.
  void MoveAfter(const Call& call, std::string_view path, Response& response) {
    if (response.status != 404 && response.status != 409 && response.status != 503) return;
    const ApiError moved = Move(call, path);
    if (response.status != 409) SendError(moved, response);
  }

  // Tells the browser of an allowed page so, errors included. True when it asks beforehand (no key comes with that):
  // the response is then complete.
  bool TellOrigin(const Request& request, Response& response) const {
    const std::string origin = request.get_header_value("Origin");
    if (!origins_.Allows(origin)) return false;
    response.set_header("Access-Control-Allow-Origin", origin);
    response.set_header("Vary", "Origin");
    response.set_header("Access-Control-Expose-Headers", "Retry-After");
    if (request.method != "OPTIONS" || !request.has_header("Access-Control-Request-Method")) return false;
    const std::string headers = request.get_header_value("Access-Control-Request-Headers");
    const bool fine = !headers.empty() && std::all_of(headers.begin(), headers.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == ',' ||
             c == ' ';
    });
    response.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE");
    response.set_header("Access-Control-Allow-Headers", fine ? headers : "Authorization, Content-Type");
    response.set_header("Access-Control-Max-Age", "600");
    response.status = 204;
    return true;
  }

  // As long whichever it is.
  bool IsKey(std::string_view given) const {
    bool found = false;
    for (const std::string& key : options_.api_keys) found |= SameSecret(given, key);
    return found;
  }

  // Before anything of the body is read. http 0: go on.
  ApiError Check(const Request& request) const {
    if (request.path.size() > kMaxPathBytes) return {414, "", ReasonOf(414)};
    constexpr std::string_view kMethods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
    if (std::find(std::begin(kMethods), std::end(kMethods), request.method) == std::end(kMethods)) {
      return {405, "", "this method is not known here"};
    }
    const std::string_view path = CanonicalPath(request.path);
    if (path == "/health" || path == "/") return {0, "", ""};  // the page asks for the key
    // The model's name is told to everybody; a wrong key is refused there, too: clients try theirs with it.
    const bool needs_key = path != "/v1/models" || request.has_header("Authorization");
    if (!options_.api_keys.empty() && needs_key) {
      const std::string given = request.get_header_value("Authorization");
      constexpr std::string_view kBearer = "Bearer ";
      if (!given.starts_with(kBearer) || !IsKey(std::string_view(given).substr(kBearer.size()))) {
        return {401, "invalid_api_key",
                "the request needs the header 'Authorization: Bearer KEY' with a key of the server"};
      }
    }
    return origins_.Check(request.get_header_value("Origin"), request.get_header_value("Host"));
  }

  ApiError ReadBody(const Request& request, const httplib::ContentReader& read, std::string* body) const {
    if (request.is_multipart_form_data()) return {415, "", "the body must be JSON, not a form"};
    if (request.has_header("Content-Encoding")) return {415, "", "the body must not be compressed"};
    // No length, no content: the library would wait for the connection's end.
    if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) return {0, "", ""};
    const size_t most = static_cast<size_t>(options_.http.max_body_bytes);
    const uint64_t length = request.get_header_value<uint64_t>("Content-Length");
    if (length > most) return {413, "", ReasonOf(413)};
    int64_t counted = kUncountedBytes;
    const auto count = [&](int64_t n_bytes) {
      if (n_bytes <= counted) return Status();
      return HttpConnection::Current()->Take(n_bytes - std::exchange(counted, n_bytes));
    };
    Status room = count(static_cast<int64_t>(length));
    if (!room.ok()) return FromStatus(room);
    body->reserve(length);
    bool too_large = false;
    const bool whole = read([&](const char* data, size_t n) {
      const size_t size = body->size() + n;
      too_large = size > most;
      if (too_large) return false;
      // A body that does not say its length is counted as it grows, in steps that double.
      if (static_cast<int64_t>(size) > counted) room = count(static_cast<int64_t>(std::min(2 * size, most)));
      if (room.ok()) body->append(data, n);
      return room.ok();
    });
    if (too_large) return {413, "", ReasonOf(413)};
    if (!room.ok()) return FromStatus(room);
    if (!whole) return {400, "", "the body did not arrive whole and in time"};
    return {0, "", ""};
  }

  void Dispatch(Call call, Response& response) {
    const std::string_view method = call.http.method == "HEAD" ? "GET" : std::string_view(call.http.method);
    std::string allowed;
    const std::string_view path = CanonicalPath(call.http.path);
    for (const RouteEntry& entry : kRoutes) {
      if (!Matches(entry.route.path, path, &call.arguments)) continue;
      if (method == entry.route.method) {
        const Inside inside(n_inside_);  // from before it is asked whether the server drains
        if (const ApiError moved = Move(call, entry.route.path); moved.http != 0) {
          SendError(moved, response);
          return Count(call.http, response.status);
        }
        (api_.get()->*entry.handler)(call, response);
        if (IsOfSession(entry.route.path)) {
          if (draining_) {
            MoveAfter(call, entry.route.path, response);
          } else if (response.status == 404 && handover_->Holds(call.arguments[0])) {
            // It was written to the folder while its request was on the way here.
            SendError({503, "handed_over", "the session ended for want of use just now; ask again"}, response);
          }
        }
        // The library fills in the status of what went well only after this.
        const int http = response.status < 0 ? 200 : response.status;
        host_->metrics().CountRequest(std::string(entry.route.method) + " " + entry.route.path, http);
        return;
      }
      allowed += (allowed.empty() ? "" : ", ") + std::string(entry.route.method);
    }
    if (allowed.empty()) {
      SendError({404, "not_found", ReasonNotServed(call.http.path)}, response);
    } else {
      response.set_header("Allow", allowed);
      SendError({405, "", "this address takes " + allowed + " only"}, response);
    }
    Count(call.http, response.status);
  }

  // Requests that no route took: addresses are the client's words and no labels of ours.
  void Count(const Request&, int http) { host_->metrics().CountRequest("other", http); }

  const ServerOptions options_;
  const OriginRules origins_;
  std::unique_ptr<Host> host_;
  std::optional<Handover> handover_;
  std::atomic<bool> draining_{false};
  std::atomic<int> n_inside_{0};
  std::unique_ptr<Api> api_;
  HttpServer http_;
  int port_ = 0;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::Make(LoadedModel& model, ServerOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  WEIR_RETURN_IF_ERROR(impl->Start(model));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

const Host& Server::host() const { return impl_->host(); }
int Server::port() const { return impl_->port(); }
Status Server::Drain(std::chrono::seconds wait) { return impl_->Drain(wait); }
Status Server::Run() { return impl_->Run(); }
void Server::Stop() { impl_->Stop(); }

}  // namespace weir
