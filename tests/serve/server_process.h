// SPDX-License-Identifier: Apache-2.0
// The real `weir serve` on a free port, and what a client says to it.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace weir::testing {

using Json = nlohmann::ordered_json;

struct HttpAnswer {
  int status = 0;  // 0: the connection broke
  std::string body;
  std::string content_type;
  std::string session_id;  // the header x-session-id, or Mcp-Session-Id
  Json json() const { return Json::parse(body, nullptr, /*allow_exceptions=*/false); }
  // The objects of a stream of server-sent events, without its [DONE]; `done` (may be null) says whether that came
  // last.
  std::vector<Json> events(bool* done = nullptr) const;
};

class ServerProcess {
 public:
  // Runs `weir serve -m MODEL --port 0` and `more`, and waits until it serves. Tests fail when it does not, or sleeps
  // for a minute before it does; time in which it was stopped or had no processor is nobody's fault. MODEL is one of
  // tests/golden/models, or a path.
  explicit ServerProcess(const std::vector<std::string>& more = {}, const std::string& model = "llama");
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  int port() const { return port_; }
  // Thread-safe.
  HttpAnswer Get(const std::string& path, const std::string& key = "") const;
  HttpAnswer Post(const std::string& path, const Json& body, const std::string& key = "") const;
  HttpAnswer PostText(const std::string& path, const std::string& body, const std::string& key = "") const;
  HttpAnswer Delete(const std::string& path) const;
  // With headers of the request's own.
  HttpAnswer PostWith(const std::string& path, const Json& body,
                      const std::vector<std::pair<std::string, std::string>>& headers) const;
  // Bytes as they are, and what comes back until the server closes. With `leave`, closes after sending without reading.
  std::string Raw(const std::string& bytes, bool leave = false) const;
  // A connection that is the caller's to close; -1 when it is refused.
  int Connect() const;

  // Does not wait for what it does.
  void Signal(int number) const;
  // SIGKILL, and the end is waited for.
  void Kill();
  // SIGTERM; the exit code, or -1 when it did not end within 20 seconds.
  int Terminate();
  // SIGSTOP and SIGCONT: a server that does nothing for a while and does not know it.
  void Pause() const;
  void GoOn() const;
  bool Running() const;
  int64_t ResidentBytes() const;
  int64_t PeakResidentBytes() const;

 private:
  int64_t StatusBytes(const std::string& what) const;
  pid_t child_ = -1;
  int err_ = -1;
  int port_ = 0;
};

}  // namespace weir::testing
