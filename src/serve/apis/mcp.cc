// weir-plugin: api
// SPDX-License-Identifier: Apache-2.0
// The Model Context Protocol over HTTP: every message is a request, every answer its body. The protocol's session is a
// stream session: its id is the header Mcp-Session-Id, and DELETE ends it.
#include "serve/mcp.h"

#include <string>

#include "serve/apis/api.h"
#include "serve/call_job.h"
#include "serve/new_session.h"
#include "serve/reply.h"
#include "serve/routes/common.h"

namespace weir {
namespace {

constexpr const char* kHeader = "Mcp-Session-Id";

void HandleMessage(const Call& call, httplib::Response& response) {
  const auto message = McpServer::Parse(call.body);
  if (!message.ok()) return SendJson(McpServer::NotAMessage(message.status()), response, 400);
  std::string session = call.http.get_header_value(kHeader);
  if (message->is_object() && message->value("method", Json()) == "initialize" && session.empty()) {
    // Only what begins well gets a session.
    const auto answer = McpServer(call.host, call.options).Answer(*message, ClientWaits);
    if (!answer) {
      response.status = 202;
      return;
    }
    if (!answer->contains("result")) return SendJson(*answer, response);
    Json state;
    if (const ApiError error = MakeSession(call.host, call.options, {}, ClientWaits, &state); error.http != 0) {
      return SendError(error, response);
    }
    response.set_header(kHeader, state["id"].get<std::string>());
    return SendJson(*answer, response);
  }
  if (session.empty()) {
    return SendError({400, "", "the request needs the header Mcp-Session-Id, which the answer to 'initialize' has"},
                     response);
  }
  if (!call.host.sessions().Has(session)) {
    return SendError({404, "not_found", "there is no session '" + session + "'; begin with 'initialize'"}, response);
  }
  McpServer server(call.host, call.options, session);
  const auto answer = server.Answer(*message, ClientWaits);
  if (answer) return SendJson(*answer, response);
  response.status = 202;
}

void HandleEnd(const Call& call, httplib::Response& response) {
  const Status status = DeleteSession(call.host, call.http.get_header_value(kHeader));
  if (!status.ok()) return SendError(status, response);
  response.status = 204;
}

std::string SessionOf(const Call& call) { return call.http.get_header_value(kHeader); }

constexpr RouteInfo kRoutes[] = {
    {.method = "POST", .path = "/mcp", .handle = HandleMessage, .session = SessionOf},
    {.method = "DELETE", .path = "/mcp", .handle = HandleEnd, .session = SessionOf},
};

}  // namespace

extern const ApiInfo kMcp;
const ApiInfo kMcp = {.name = "Model Context Protocol", .routes = kRoutes};

}  // namespace weir
