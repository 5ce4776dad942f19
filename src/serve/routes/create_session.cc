// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Creates a session and reads its system message.
#include <fmt/core.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"
#include "serve/session_job.h"

namespace weir {
namespace {

constexpr int64_t kMaxFramesWaiting = 256;
constexpr int64_t kMaxRecallDisk = int64_t{1} << 50, kMaxRecallTokens = 1 << 20;
constexpr size_t kMaxSystemBytes = 1 << 16;  // it is encoded on the engine's thread

void Handle(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body.empty() ? "{}" : call.body);
  if (!body.ok()) return SendError(body.status(), response);
  Fields fields(*body);
  std::string policy, system;
  std::optional<std::string> recall_spec;
  int64_t pot = 0, recall_disk = 0, recall_tokens = 0, n_waiting = call.host.options().frames_waiting;
  bool pin_system = true;
  fields.Get("policy", &policy);
  fields.Get("pot", &pot, 1, 1 << 26);
  fields.Get("system", &system);
  if (system.size() > kMaxSystemBytes) {
    fields.Fail("system", fmt::format("may have at most {} bytes; append longer texts", kMaxSystemBytes));
  }
  fields.Get("pin_system", &pin_system);
  fields.Get("frames_waiting", &n_waiting, 0, kMaxFramesWaiting);
  if (fields.Has("recall")) fields.Get("recall", &recall_spec.emplace());
  fields.Get("recall_disk", &recall_disk, 1, kMaxRecallDisk);
  fields.Get("recall_tokens", &recall_tokens, 1, kMaxRecallTokens);
  if (call.host.vision() == nullptr) fields.Only("frames_waiting", 0);
  if (const Status bad = fields.Done(); !bad.ok()) return SendError(bad, response);
  const auto recall = call.host.recall().OptionsFor(recall_spec, recall_disk, recall_tokens);
  if (!recall.ok()) return SendError(recall.status(), response);
  const auto options = call.host.admission().OptionsFor(policy, pot, *recall);
  if (!options.ok()) {
    // An unknown policy is an invalid field, not 404.
    return SendError({400, "", "'policy' is not usable: " + options.status().message()}, response);
  }
  std::string id;
  std::vector<int32_t> head;
  const Status status = CallEngine(call.host, [&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, call.host.Create(*options, static_cast<int>(n_waiting)));
    if (Status begun = call.host.recall().Begin(*recall, stream); !begun.ok()) {
      call.host.sessions().Erase(stream->id);
      return begun;
    }
    id = stream->id;
    head = stream->conversation.Begin(system.empty() ? std::nullopt : std::optional<std::string>(system));
    return Status();
  });
  if (!status.ok())
    return SendError(AdmissionError(call.host, *options, WithoutFolder(status, call.options.host.recall.dir)),
                     response);
  // Read step by step like any other text, so that other jobs continue.
  const auto job = std::make_shared<BeginJob>(call.host, id, std::move(head), pin_system && !system.empty());
  if (const Status posted = call.host.scheduler().PostAlways(job); !posted.ok()) {
    return SendError(posted, response);
  }
  for (;;) {
    if (const auto result = job->events.Pop(kLookAtClient)) {
      if (result->ok()) return SendJson(**result, response, 201);
      Status why = result->status();
      if (why.code() == StatusCode::kOverBudget || why.code() == StatusCode::kInvalidArgument) {
        why = InvalidArgument("'system' does not fit into the pot: {}", why.message());
      }
      return SendError(why, response);
    }
    if (!ClientWaits()) job->Cancel();  // this also removes the session
  }
}

}  // namespace

extern const RouteInfo kCreateSession;
const RouteInfo kCreateSession = {
    .method = "POST",
    .path = "/v1/sessions",
    .handle = Handle,
};

}  // namespace weir
