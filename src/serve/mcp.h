// SPDX-License-Identifier: Apache-2.0
// The Model Context Protocol over stream sessions: an agent appends to an endless memory, asks it, pins what must stay,
// and finds what left the pot.
//
// Shapes: modelcontextprotocol.io/specification, JSON-RPC 2.0. The transport is the caller's: lines of standard input
// (`weir mcp`) or HTTP (src/serve/apis/mcp.cc).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "serve/host.h"
#include "serve/server_options.h"

namespace weir {

class McpServer {
 public:
  // Both must outlive it. `session`: the session that tools work on where a call names none; empty: one is made for the
  // first call.
  McpServer(Host& host, const ServerOptions& options, std::string session = "")
      : host_(host), options_(options), session_(std::move(session)) {}

  // A message, or a list of them, as JSON. kInvalidArgument for a text that is neither.
  static Result<Json> Parse(const std::string& text);
  // The answer to what Parse() returned; nullopt where none is due, for notifications. `wanted` returns false when
  // nobody waits for it any longer. Any thread but the engine's, one call at a time.
  std::optional<Json> Answer(const Json& message, const std::function<bool()>& wanted);
  // The answer to a text that is no message.
  static Json NotAMessage(const Status& why);

  // Empty: none was needed yet.
  const std::string& session() const { return session_; }

 private:
  std::optional<Json> AnswerOne(const Json& message, const std::function<bool()>& wanted);
  Result<Json> Call(const Json& params, const std::function<bool()>& wanted);
  Status NeedSession(const std::function<bool()>& wanted, std::string* id);

  Host& host_;
  const ServerOptions& options_;
  std::string session_;
};

}  // namespace weir
