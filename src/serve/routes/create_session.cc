// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Creates a session and reads its system message.
#include <fmt/core.h>
#include <cstdint>

#include "serve/new_session.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"
#include "serve/session_id.h"

namespace weir {
namespace {

constexpr int64_t kMaxFramesWaiting = 256;
constexpr int64_t kMaxRecallDisk = int64_t{1} << 50, kMaxRecallTokens = 1 << 20;
constexpr int64_t kMaxRuleTokens = 4096;
constexpr size_t kMaxSystemBytes = 1 << 16;  // it is encoded on the engine's thread

void Handle(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body.empty() ? "{}" : call.body);
  if (!body.ok()) return SendError(body.status(), response);
  Fields fields(*body);
  NewSession wish;
  int64_t n_waiting = call.host.options().frames_waiting;
  fields.Get("policy", &wish.policy);
  fields.Get("pot", &wish.pot, 1, 1 << 26);
  fields.Get("system", &wish.system);
  if (wish.system.size() > kMaxSystemBytes) {
    fields.Fail("system", fmt::format("may have at most {} bytes; append longer texts", kMaxSystemBytes));
  }
  fields.Get("pin_system", &wish.pin_system);
  fields.Get("frames_waiting", &n_waiting, 0, kMaxFramesWaiting);
  if (fields.Has("recall")) fields.Get("recall", &wish.recall.emplace());
  fields.Get("recall_disk", &wish.recall_disk, 1, kMaxRecallDisk);
  fields.Get("recall_tokens", &wish.recall_tokens, 1, kMaxRecallTokens);
  fields.Get("rule_tokens", &wish.rule_tokens, 0, kMaxRuleTokens);
  if (call.host.vision() == nullptr) fields.Only("frames_waiting", 0);
  if (const Status bad = fields.Done(); !bad.ok()) return SendError(bad, response);
  wish.n_waiting = static_cast<int>(n_waiting);
  // A proxy that sends requests where the hash of this header says needs it from the first one on.
  wish.id = call.http.get_header_value("x-session-id");
  if (wish.id == "new") wish.id.clear();
  if (!wish.id.empty() && !IsChosenSessionId(wish.id)) {
    return SendError({400, "",
                      "'x-session-id' must be s- and 16 to 98 small letters, digits or '-', which nobody can "
                      "guess: whoever knows a session's name can use it"},
                     response);
  }
  Json state;
  if (const ApiError error = MakeSession(call.host, call.options, wish, ClientWaits, &state); error.http != 0) {
    return SendError(error, response);
  }
  response.set_header("x-session-id", state["id"].get<std::string>());
  SendJson(state, response, 201);
}

}  // namespace

extern const RouteInfo kCreateSession;
const RouteInfo kCreateSession = {
    .method = "POST",
    .path = "/v1/sessions",
    .handle = Handle,
};

}  // namespace weir
