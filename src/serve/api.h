// What the routes do. Each handler turns one request into one answer; api_*.cc hold them by area.
#pragma once

#include <string>
#include <vector>

#include "serve/answer_shape.h"
#include "serve/api_error.h"
#include "serve/http_server.h"
#include "serve/server.h"

namespace weir {

// One request, its body read.
struct Call {
  const httplib::Request& http;
  std::string body;
  std::vector<std::string> arguments;  // what stands for {names} of the path
};

class Api {
 public:
  Api(Host& host, const ServerOptions& options) : host_(host), options_(options) {}

  using Handler = void (Api::*)(const Call&, httplib::Response&);

  void Page(const Call& call, httplib::Response& response);
  void Health(const Call& call, httplib::Response& response);
  void Props(const Call& call, httplib::Response& response);
  void MetricsText(const Call& call, httplib::Response& response);
  void Models(const Call& call, httplib::Response& response);
  void Model(const Call& call, httplib::Response& response);
  void Tokenize(const Call& call, httplib::Response& response);
  void Detokenize(const Call& call, httplib::Response& response);
  void ApplyTemplate(const Call& call, httplib::Response& response);

  void Chat(const Call& call, httplib::Response& response);
  void Completion(const Call& call, httplib::Response& response);

  void ListSessions(const Call& call, httplib::Response& response);
  void CreateSession(const Call& call, httplib::Response& response);
  void GetSession(const Call& call, httplib::Response& response);
  void GetHeld(const Call& call, httplib::Response& response);
  void DeleteSession(const Call& call, httplib::Response& response);
  void Append(const Call& call, httplib::Response& response);
  void Ask(const Call& call, httplib::Response& response);
  void Fork(const Call& call, httplib::Response& response);
  void SaveSession(const Call& call, httplib::Response& response);
  void RestoreSession(const Call& call, httplib::Response& response);

 private:
  // Whole or as a stream, as the request wants it. An empty id: in an answer pot.
  void Answer(const std::string& id, CompletionRequest request, AnswerShape::Kind kind, httplib::Response& response);
  // One frame of a live video: it waits in the session's queue, nobody waits for the model.
  void AppendFrame(const std::string& id, const VisualInput& frame, int64_t t_ms, httplib::Response& response);
  Json ModelJson() const;
  // The file of that name in the snapshot folder; nothing outside it has a name.
  Result<std::string> SnapshotPath(const Json& body) const;

  Host& host_;
  const ServerOptions& options_;
};

struct RouteEntry {
  Route route;
  Api::Handler handler;
};
std::span<const RouteEntry> RouteTable();

void SendJson(const Json& json, httplib::Response& response, int http = 200);
// The same of what is JSON already.
void SendJsonText(std::string text, httplib::Response& response, int http = 200);
void SendError(const ApiError& error, httplib::Response& response);

}  // namespace weir
