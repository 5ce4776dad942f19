// SPDX-License-Identifier: Apache-2.0
#include "serve/handover.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "chat/session_file.h"
#include "io/snapshot.h"
#include "serve/call_job.h"
#include "serve/session_id.h"
#include "serve/session_snapshot.h"

namespace weir {

// Serialises takeovers of the same session: the second request then finds the session here. Takeovers of different
// sessions do not wait for each other.
class Handover::TakingOver {
 public:
  TakingOver(Underway& all, const std::string& id) : all_(all), id_(id) {
    std::unique_lock<std::mutex> lock(all_.mutex);
    all_.ended.wait(lock, [&] { return !all_.ids.contains(id_); });
    all_.ids.insert(id_);
    number_ = all_.n_begun++;
  }
  ~TakingOver() {
    {
      const std::lock_guard<std::mutex> lock(all_.mutex);
      all_.ids.erase(id_);
    }
    all_.ended.notify_all();
  }
  TakingOver(const TakingOver&) = delete;
  TakingOver& operator=(const TakingOver&) = delete;

  // Different for each takeover of this server.
  int64_t number() const { return number_; }

 private:
  Underway& all_;
  const std::string id_;
  int64_t number_ = 0;
};

Result<Handover> Handover::Make(const std::string& folder) {
  if (folder.empty()) return Handover("");
  const std::string path = folder + "/handover";
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return IoError("cannot make {}: {}", path, std::strerror(errno));
  }
  return Handover(path);
}

// On the engine's thread: nothing can read or change the session while it is written.
Status Handover::Write(Host& host, StreamSession& stream) const {
  WEIR_ASSIGN_OR_RETURN(const auto saved, host.recall().Save(stream));
  WEIR_ASSIGN_OR_RETURN(const auto file, WriteSnapshot(host, stream, saved.note, PathOf(stream.id)));
  host.recall().Close(stream);
  Status status = file->Finish();
  if (!status.ok()) host.recall().Open(stream);
  return status;
}

Result<bool> Handover::LeaveIdle(Host& host, const std::string& id) const {
  bool busy = false;
  const Status status = CallEngine(host, [&]() -> Status {
    StreamSession* const stream = host.sessions().Find(id);
    if (stream == nullptr) return Status();
    busy = stream->busy;
    if (busy) return Status();
    WEIR_RETURN_IF_ERROR(Write(host, *stream));
    host.sessions().Erase(id);
    return Status();
  });
  if (!status.ok()) return status;
  return !busy;
}

bool Handover::Holds(const std::string& id) const {
  return enabled() && IsSessionId(id) && access(PathOf(id).c_str(), F_OK) == 0;
}

Status Handover::Leave(Host& host, const std::string& id) const {
  const Status status = CallWithSession(host, id, [&](StreamSession& stream) -> Status {
    WEIR_RETURN_IF_ERROR(Write(host, stream));
    stream.closing = true;
    return Status();
  });
  if (status.code() == StatusCode::kNotFound) return Status();
  WEIR_RETURN_IF_ERROR(status);
  return CallEngine(host, [&] {
    host.sessions().Erase(id);
    return Status();
  });
}

Result<bool> Handover::Take(Host& host, const std::string& id) const {
  if (!enabled() || !IsSessionId(id)) return false;
  const TakingOver alone(*underway_, id);
  if (host.sessions().Has(id) || !Holds(id)) return false;  // the folder may be slow
  const std::string path = PathOf(id);
  // The rename decides which server gets the session; the new name must be unique.
  const std::string mine = fmt::format("{}.{}-{}-{}", path, getpid(), alone.number(), static_cast<const void*>(&host));
  if (std::rename(path.c_str(), mine.c_str()) != 0) {
    if (errno == ENOENT) return false;
    return IoError("cannot take the session over: {}", std::strerror(errno));
  }
  const auto snapshot = SnapshotReader::Open(mine, host.ledger().budget_bytes() + kMaxSnapshotText);
  Status status = snapshot.status();
  if (status.ok()) {
    status = CallEngine(host, [&] { return ReadSnapshot(host, **snapshot, id).status(); });
  }
  if (!status.ok()) {
    (void)std::rename(mine.c_str(), path.c_str());  // another server may have room
    std::string why = status.message();
    if (const size_t at = why.find(mine); at != std::string::npos) why.replace(at, mine.size(), path);
    return Status(status.code(), std::move(why));
  }
  (void)std::remove(mine.c_str());
  return true;
}

}  // namespace weir
