// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Restores a session from the snapshot folder.
#include "chat/session_file.h"
#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/routes/route.h"
#include "serve/session_json.h"
#include "serve/session_snapshot.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const auto body = ParseJsonObject(call.body);
  if (!body.ok()) return SendError(body.status(), response);
  const auto key = SnapshotKey(call.options, *body);
  if (!key.ok()) return SendError(key.status(), response);
  const int64_t most = call.host.ledger().budget_bytes() + kMaxSnapshotText;
  const auto local = call.options.store->Fetch(*key, most);
  if (!local.ok()) return SendError(WithoutFolder(local.status(), call.options.folder), response);
  const auto snapshot = SnapshotReader::Open(local->path(), most);
  if (!snapshot.ok()) return SendError(WithoutFolder(snapshot.status(), call.options.folder), response);
  Json state;
  const Status status = CallEngine(call.host, [&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, ReadSnapshot(call.host, **snapshot));
    state = SessionJson(*stream);
    return Status();
  });
  if (!status.ok()) return SendError(WithoutFolder(status, call.options.folder), response);
  if (const ApiError error = call.host.Settle(state["id"], {}); error.http != 0) return SendError(error, response);
  response.set_header("x-session-id", state["id"].get<std::string>());
  SendJson(state, response, 201);
}

}  // namespace

extern const RouteInfo kRestoreSession;
const RouteInfo kRestoreSession = {
    .method = "POST",
    .path = "/v1/sessions/restore",
    .handle = Handle,
};

}  // namespace weir
