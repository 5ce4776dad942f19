// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Forks a session: creates a second one with the same contents.
#include "engine/session/aside_room.h"
#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"
#include "serve/session_json.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  Json state;
  SessionOptions options;
  const Status status = CallWithSession(
      call.host, call.arguments[0],
      [&](StreamSession& from) -> Status {
        options = from.options;
        WEIR_ASSIGN_OR_RETURN(StreamSession* const to,
                              call.host.Create(from.options, from.frames == nullptr ? 0 : from.frames->n_waiting()));
        Status copied = to->session->CopyFrom(*from.session);
        if (copied.ok()) copied = call.host.recall().Fork(from, to);
        if (!copied.ok()) {
          call.host.sessions().Erase(to->id);
          return copied;
        }
        if (to->kept_frames != nullptr) to->kept_frames->CopyFrom(*from.kept_frames);
        to->conversation = from.conversation;
        if (from.rules != nullptr) {
          copied = to->rules->set.Restore(from.rules->set.Save(), to->conversation, AsideRoom(to->session->plan()));
          if (!copied.ok()) {
            call.host.sessions().Erase(to->id);
            return copied;
          }
        }
        to->t_ms = from.t_ms;
        to->rows_pruned = from.rows_pruned;
        if (to->frames != nullptr) to->frames->GoOnFrom(from.frames->counters());
        state = SessionJson(*to);
        return Status();
      },
      ClientWaits);
  if (!status.ok())
    return SendError(AdmissionError(call.host, options, WithoutFolder(status, call.options.host.recall.dir)), response);
  if (const ApiError error = call.host.Settle(state["id"], {}); error.http != 0) return SendError(error, response);
  response.set_header("x-session-id", state["id"].get<std::string>());
  SendJson(state, response, 201);
}

}  // namespace

extern const RouteInfo kFork;
const RouteInfo kFork = {
    .method = "POST",
    .path = "/v1/sessions/{id}/fork",
    .handle = Handle,
};

}  // namespace weir
