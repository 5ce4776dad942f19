// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// A session over a WebSocket: frames and questions in, answers and events out.
#include <charconv>
#include <memory>
#include <string>
#include <utility>

#include "serve/session_socket.h"

#include "serve/call_job.h"
#include "serve/reader_places.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"
#include "serve/session_json.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  if (const ApiError none = WebSocket::Check(call.http); none.http != 0) {
    if (none.http == 426) {
      response.set_header("Upgrade", "websocket");
      response.set_header("Sec-WebSocket-Version", "13");
    }
    return SendError(none, response);
  }
  const auto place = std::make_shared<ReaderPlace>();
  if (const ApiError full = place->Check(call.options.http); full.http != 0) return SendError(full, response);
  const auto last_event = NumberParam(call.http, "last_event_id", 0, 0, kMaxSeq);
  if (!last_event.ok()) return SendError(last_event.status(), response);
  SocketSession session{.id = call.arguments[0], .last_event = *last_event};
  const Status status = LookAtSession(call.host, session.id, [&](const StreamSession& stream) {
    session.state = SessionJson(stream);
    session.frames = stream.frames;
    if (stream.rules != nullptr) session.ring = stream.rules->events;
  });
  if (!status.ok()) return SendError(status, response);
  response.status = 101;
  HttpConnection& connection = *HttpConnection::Current();
  const WebSocket::Limits limits = {.max_message = call.options.http.max_body_bytes,
                                    .write = std::chrono::seconds(call.options.http.write_timeout_s),
                                    .idle = std::chrono::seconds(call.options.http.request_timeout_s)};
  connection.TakeOver([place, limits, session = std::move(session), request = call.http, &host = call.host,
                       &options = call.options, &room = connection.bodies()](int fd, const std::string& early) mutable {
    // A client that does not wait for the answer speaks something else.
    if (!early.empty()) return;
    auto socket = WebSocket::Accept(fd, request, limits, room);
    if (socket.ok()) RunSessionSocket(host, options, **socket, std::move(session));
  });
}

}  // namespace

extern const RouteInfo kSessionSocket;
const RouteInfo kSessionSocket = {
    .method = "GET",
    .path = "/v1/sessions/{id}/socket",
    .handle = Handle,
};

}  // namespace weir
