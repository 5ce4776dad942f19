// SPDX-License-Identifier: Apache-2.0
#include "serve/chat_call.h"

#include <fmt/core.h>
#include <atomic>
#include <ctime>
#include <string>
#include <utility>

#include "serve/answer_sender.h"
#include "serve/call_job.h"
#include "serve/reply.h"

namespace weir {

void AnswerChat(const Call& call, ChatBody body, const MakeShape& make_shape, httplib::Response& response) {
  std::string id = call.http.get_header_value("x-session-id");
  const bool made = id == "new";
  if (made) {
    if (const ApiError error = SessionFor(call, body, &id); error.http != 0) return SendError(error, response);
  }
  if (!id.empty()) {
    AnswerInSession(call, id, body, make_shape, response);
    if (made && response.status >= 400) (void)DeleteSession(call.host, id);  // nobody knows it
    return;
  }
  auto request = body.Parse(call.host, call.options.answers);
  if (!request.ok()) return SendError(request.status(), response);
  auto shape = make_shape(*request);
  SendAnswers(call.host, "", *std::move(request), std::move(shape), response);
}

std::string NewReplyId(const char* prefix) {
  static std::atomic<int64_t> n{0};
  return fmt::format("{}{:x}{:x}", prefix, std::time(nullptr), n.fetch_add(1));
}

std::string UtcText(int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace weir
