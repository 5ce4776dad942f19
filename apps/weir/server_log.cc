// SPDX-License-Identifier: Apache-2.0
#include "server_log.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

#include "io/json.h"
#include "print.h"

namespace weir::app {
namespace {

// "2026-11-26T03:41:15.123Z"
std::string UtcNow() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return fmt::format("{}.{:03d}Z", std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts)),
                     ms);
}

Json BeginLine(const char* level, const char* event) {
  return {{"time", UtcNow()}, {"level", level}, {"event", event}};
}

}  // namespace

void ServerLog::Line(const char* event, const std::string& message, const char* level, const char* prefix) {
  if (json_) {
    Json line = BeginLine(level, event);
    line["message"] = message;
    return Write(JsonText(line));
  }
  if (*prefix != '\0') return Print(stderr, "{}{}\n", prefix, message);
  Print(stderr, "{:<8} {}\n", event, message);
}

void ServerLog::Request(const RequestRecord& record) {
  if (!json_) return;
  Json line = BeginLine(record.status >= 500 ? "error" : "info", "request");
  line["request"] = record.name;
  if (record.status > 0) line["status"] = record.status;
  line["seconds"] = record.seconds;
  if (!record.session.empty()) line["session"] = record.session;
  if (record.n_prompt > 0) line["prompt_tokens"] = record.n_prompt;
  if (record.n_answer > 0) line["answer_tokens"] = record.n_answer;
  line["trace_id"] = record.trace_id;
  line["span_id"] = record.span_id;
  line["sampled"] = record.sampled;
  if (const int64_t n = n_left_out_.exchange(0); n > 0) line["lines_left_out"] = n;
  Write(JsonText(line));
}

// A line is shorter than PIPE_BUF, so that a pipe with room takes all of it at once.
void ServerLog::Write(std::string line) {
  line += '\n';
  pollfd fd{STDERR_FILENO, POLLOUT, 0};
  if (poll(&fd, 1, 0) != 1 || (fd.revents & POLLOUT) == 0 || write(STDERR_FILENO, line.data(), line.size()) < 0) {
    ++n_left_out_;
  }
}

}  // namespace weir::app
