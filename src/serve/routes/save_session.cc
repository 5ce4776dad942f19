// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Writes a session to the place of snapshots.
#include <memory>
#include <utility>

#include "serve/call_job.h"
#include "serve/reply.h"
#include "serve/request_trace.h"
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
  const SpanTimer storing("store");
  const auto local = call.options.store->NewFile(*key);
  if (!local.ok()) return SendError(WithoutFolder(local.status(), call.options.folder), response);
  std::unique_ptr<SnapshotWriter> file;
  RecallStore::Saved saved;
  Json json;
  Status status = CallWithSession(
      call.host, call.arguments[0],
      [&](StreamSession& stream) -> Status {
        json = SessionJson(stream);
        WEIR_ASSIGN_OR_RETURN(saved, call.host.recall().Save(stream, (*body)["name"].get<std::string>()));
        WEIR_ASSIGN_OR_RETURN(file, WriteSnapshot(call.host, stream, saved.note, {}, local->path()));
        return Status();
      },
      ClientWaits);
  // The disk is synced here, not on the engine's thread: first the archive that the snapshot names.
  if (status.ok()) status = call.host.recall().Sync(saved);
  if (status.ok()) status = file->Finish(/*sync=*/!local->passing());
  if (status.ok()) status = call.options.store->Send(*key, *local);
  (void)CallEngine(call.host, [&] {
    call.host.recall().EndSave(saved, status.ok());
    return Status();
  });
  if (status.ok()) storing.Add({{"weir.snapshot.bytes", file->state_bytes()}});
  if (!status.ok())
    return SendError(WithoutFolder(WithoutFolder(status, call.options.folder), call.options.host.recall.dir), response);
  SendJson(
      {{"name", (*body)["name"]}, {"object", "snapshot"}, {"bytes", file->state_bytes()}, {"session", std::move(json)}},
      response);
}

}  // namespace

extern const RouteInfo kSaveSession;
const RouteInfo kSaveSession = {
    .method = "POST",
    .path = "/v1/sessions/{id}/save",
    .handle = Handle,
};

}  // namespace weir
