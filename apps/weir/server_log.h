// SPDX-License-Identifier: Apache-2.0
// What `weir serve` says on stderr: words for people, or one JSON object a line for programs.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "serve/telemetry.h"

namespace weir::app {

// Thread-safe. A reader of stderr that stands still holds up nobody: lines that it has no room for are left out, and
// the next one says how many.
class ServerLog {
 public:
  explicit ServerLog(bool json) : json_(json) {}

  bool json() const { return json_; }
  // "pot      512 tokens ...", or an event of that name.
  template <typename... Args>
  void Say(const char* event, fmt::format_string<Args...> format, Args&&... args) {
    Line(event, fmt::vformat(format, fmt::make_format_args(args...)), "info", "");
  }
  // "weir: ...".
  void Tell(const char* event, const std::string& message) { Line(event, message, "info", "weir: "); }
  // "weir: warning: ...".
  void Warn(const std::string& message) { Line("warning", message, "warn", "weir: warning: "); }
  // Each request, only in JSON.
  void Request(const RequestRecord& record);

 private:
  // `prefix`: of the words for people; empty: the event.
  void Line(const char* event, const std::string& message, const char* level, const char* prefix);
  void Write(std::string line);

  const bool json_;
  std::atomic<int64_t> n_left_out_{0};
};

}  // namespace weir::app
