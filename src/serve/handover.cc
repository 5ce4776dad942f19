// SPDX-License-Identifier: Apache-2.0
#include "serve/handover.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "chat/session_file.h"
#include "io/snapshot.h"
#include "serve/call_job.h"
#include "serve/session_id.h"
#include "serve/session_snapshot.h"
#include "serve/thread_book.h"

namespace weir {
namespace {

constexpr size_t kMostEnded = 1 << 14;

ApiError Elsewhere() { return {503, "handed_over", "another server has the session, or is taking it; try again"}; }

// What a request that lost its session may say: nothing of it counts, unless it was stored with another's meanwhile.
ApiError Refused(SessionTicket ticket, uint64_t n_stores, bool reads) {
  if (reads || ticket.n_stores == n_stores) return Elsewhere();
  return CutShort(IoError("another server has the session now; its 'seen' tells whether this was read"));
}

// Earlier versions renamed a session's file to ID.weir.SERVER while they took it, and a server that was killed then
// left it under that name. After a while nobody works on it any more.
constexpr std::time_t kAbandonedAfter = 60;

void Adopt(const std::string& folder) {
  constexpr std::string_view kEnd = ".weir.";
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path(), name = entry->path().filename();
    const size_t at = name.find(kEnd);
    if (at == name.npos || name.ends_with(".part") || !IsSessionId(name.substr(0, at))) continue;
    struct stat info {};
    if (stat(path.c_str(), &info) != 0 || std::time(nullptr) - info.st_ctime < kAbandonedAfter) continue;
    // Never over another file.
    const std::string back = folder + "/" + name.substr(0, at + kEnd.size() - 1);
    if (link(path.c_str(), back.c_str()) == 0) (void)std::remove(path.c_str());
  }
}

}  // namespace

// One thing at a time with one session: the second request for a session that is taken over then finds it here. Other
// sessions do not wait.
class Handover::Alone {
 public:
  Alone(Underway& all, const std::string& id) : all_(all), id_(id) {
    std::unique_lock<std::mutex> lock(all_.mutex);
    all_.ended.wait(lock, [&] { return !all_.ids.contains(id_); });
    all_.ids.insert(id_);
  }
  ~Alone() {
    {
      const std::lock_guard<std::mutex> lock(all_.mutex);
      all_.ids.erase(id_);
    }
    all_.ended.notify_all();
  }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  Underway& all_;
  const std::string id_;
};

Result<std::unique_ptr<Handover>> Handover::Make(Store* store, const HandoverOptions& options) {
  std::unique_ptr<Handover> out(new Handover(store, options));
  if (store == nullptr) return out;
  if (const std::string folder = store->folder(); !folder.empty()) {
    const std::string path = folder + "/handover";
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      return IoError("cannot make {}: {}", path, std::strerror(errno));
    }
    Adopt(path);
  }
  WEIR_ASSIGN_OR_RETURN(
      out->lease_, Lease::Make(*store, options.node, options.lease, [handover = out.get()] { handover->LostLease(); }));
  out->owns_ = std::make_unique<Ownership>(*store, *out->lease_);
  return out;
}

Handover::~Handover() {
  if (lease_ != nullptr) lease_->End();
}

void Handover::Attach(Host* host) {
  const std::lock_guard<std::mutex> lock(mutex_);
  host_ = host;
  if (options_.durable) host->SetKeeper(this);
}

// ---- lives of sessions

void Handover::Begin(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lives_[id] = {.ticket = {.life = ++n_lives_}};
}

void Handover::EndLife(const std::string& id, bool well) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = lives_.find(id);
  if (it == lives_.end()) return;
  ended_[it->second.ticket.life] = {well, it->second.ticket.n_stores};
  if (ended_.size() > kMostEnded) ended_.erase(ended_.begin());
  lives_.erase(it);
}

void Handover::Drop(Host& host, const std::string& id) {
  owns_->Drop(id);
  EndLife(id, false);
  host.threads().Forget(id);
  (void)DropSession(host, id);
}

SessionTicket Handover::Ticket(const std::string& id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = lives_.find(id);
  return it == lives_.end() ? SessionTicket() : it->second.ticket;
}

ApiError Handover::ErrorOfEnded(SessionTicket ticket, bool reads) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = ended_.find(ticket.life);
  if (it == ended_.end()) return Refused(ticket, ticket.n_stores + 1, reads);  // long ago
  return it->second.well ? ApiError{0, "", ""} : Refused(ticket, it->second.n_stores, reads);
}

// Everything that hung on the lease may be another server's by now.
void Handover::LostLease() {
  std::vector<std::string> ids;
  Host* host = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    host = host_;
    for (const auto& [id, life] : lives_) ids.push_back(id);
  }
  if (host == nullptr) return;
  for (const std::string& id : ids) {
    const Alone alone(*underway_, id);
    if (Ticket(id).life != 0) Drop(*host, id);
  }
}

// ---- what is acknowledged

ApiError Handover::Settle(Host& host, const std::string& id, SessionTicket ticket, bool reads) {
  const ApiError fine{0, "", ""};
  if (reads) {
    // While a job works on it, what is seen is on its way anyway, and says so.
    bool busy = false;
    (void)LookAtSession(host, id, [&](const StreamSession& stream) { busy = stream.busy; });
    if (busy) return ticket.life == 0 || owns_->Mine(id) ? fine : Elsewhere();
  }
  const Alone alone(*underway_, id);
  Life life;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = lives_.find(id);
    if (it != lives_.end()) {
      life = it->second;
    } else if (ticket.life == 0) {
      life = lives_[id] = {.ticket = {.life = ++n_lives_}, .new_here = true};
    }
  }
  if (life.ticket.life == 0 || (ticket.life != 0 && life.ticket.life != ticket.life))
    return ErrorOfEnded(ticket, reads);
  bool wrote = false, mine = true;
  const Status stored = StoreChanges(host, id, &life, &wrote, &mine);
  // What a request did is stored already if there is nothing to write, whoever has the session by now.
  if (stored.ok() && (mine || (!wrote && !reads))) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto it = lives_.find(id); it != lives_.end()) it->second = life;
    return fine;
  }
  if (stored.code() == StatusCode::kNotFound) {  // it was deleted meanwhile
    EndLife(id, true);
    return fine;
  }
  if (stored.code() == StatusCode::kCancelled) {
    return reads ? ApiError{503, "draining", "this server is shutting down; try again"} : CutShort(stored);
  }
  if (stored.ok() && !wrote && !lease_->Valid()) {  // it may be well again before anybody else takes the session
    return {503, "no_lease", "this server has not reached its store for too long; try again"};
  }
  Drop(host, id);
  if (stored.ok()) return Refused(ticket, life.ticket.n_stores, reads);
  if (reads) return {503, "no_store", WithoutFolder(stored, store_->folder()).message()};
  return CutShort(Status(stored.code(), "it is not known whether this was stored, the session's 'seen' tells: " +
                                            WithoutFolder(stored, store_->folder()).message()));
}

// Writes what the session is now, unless the store has it.
Status Handover::StoreChanges(Host& host, const std::string& id, Life* life, bool* wrote, bool* mine) {
  const std::string state = owns_->NewState(id);
  WEIR_ASSIGN_OR_RETURN(const LocalFile local, store_->NewFile(state));
  std::unique_ptr<SnapshotWriter> file;
  uint64_t n_changes = 0;
  WEIR_RETURN_IF_ERROR(CallToStore(host, id, /*hold=*/false, [&](StreamSession& stream) -> Status {
    n_changes = stream.n_changes;
    if (!life->new_here && n_changes == life->stored) return Status();
    WEIR_ASSIGN_OR_RETURN(file, WriteSnapshot(host, stream, std::nullopt, {}, local.path()));
    return Status();
  }));
  *wrote = file != nullptr;
  if (!*wrote) {
    *mine = owns_->Mine(id);
    return Status();
  }
  WEIR_RETURN_IF_ERROR(file->Finish(/*sync=*/!local.passing()));
  WEIR_RETURN_IF_ERROR(store_->Send(state, local));
  WEIR_ASSIGN_OR_RETURN(*mine, owns_->Commit(id, state, /*keep=*/true));
  life->stored = n_changes;
  life->new_here = false;
  life->ticket.n_stores += *mine;
  return Status();
}

Status Handover::Deleted(const std::string& id) {
  const Alone alone(*underway_, id);
  EndLife(id, true);
  const auto forgotten = owns_->Forget(id);
  if (forgotten.ok()) owns_->Drop(id);
  return forgotten.status();
}

// ---- leaving

Result<bool> Handover::Move(Host& host, const std::string& id, bool wait) {
  const Alone alone(*underway_, id);
  bool held = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    held = held_.contains(id);
  }
  const std::string state = owns_->NewState(id);
  WEIR_ASSIGN_OR_RETURN(const LocalFile local, store_->NewFile(state));
  std::unique_ptr<SnapshotWriter> file;
  bool busy = false, closed = false;
  // On the engine's thread: nothing can read or change the session while it is written, nor later, as it stays busy.
  const auto write = [&](StreamSession& stream) -> Status {
    WEIR_ASSIGN_OR_RETURN(const auto saved, host.recall().Save(stream));
    std::vector<WebhookQueue::Event> leaving;
    if (host.webhooks() != nullptr) leaving = host.webhooks()->Hold(id);
    auto begun = WriteSnapshot(host, stream, saved.note, leaving, local.path());
    if (!begun.ok()) {
      if (host.webhooks() != nullptr) host.webhooks()->Release(id, false);
      return begun.status();
    }
    file = *std::move(begun);
    host.recall().Close(stream);
    closed = true;
    return Status();
  };
  if (wait && !held) {
    const Status status = CallToStore(host, id, /*hold=*/true, write);
    if (status.code() == StatusCode::kNotFound) return true;
    WEIR_RETURN_IF_ERROR(status);
  } else {
    bool here = false;
    WEIR_RETURN_IF_ERROR(CallEngine(host, [&]() -> Status {
      const auto it = host.sessions().all().find(id);
      here = it != host.sessions().all().end() && (!it->second->closing || held);
      if (!here) return Status();
      StreamSession& stream = *it->second;
      busy = stream.busy && !held;
      if (busy) return Status();
      WEIR_RETURN_IF_ERROR(write(stream));
      stream.busy = true;
      return Status();
    }));
    if (busy) return false;
    if (!here) return true;
  }
  const bool sync = !local.passing();
  Status status = file->Finish(sync);
  if (status.ok()) status = store_->Send(state, local);
  bool written = false, unsure = false;
  if (status.ok()) {
    const auto mine = owns_->Commit(id, state, /*keep=*/false);
    status = mine.status();
    written = mine.ok() && *mine;
    unsure = !mine.ok();
  }
  // Where it is not known whether others may take it, it must not be used here either, until that is known.
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (unsure) held_.insert(id);
    if (!unsure) held_.erase(id);
  }
  if (status.ok()) EndLife(id, written);
  const Status after = CallEngine(host, [&] {
    const auto it = host.sessions().all().find(id);
    if (host.webhooks() != nullptr) host.webhooks()->Release(id, status.ok());
    if (it == host.sessions().all().end()) return Status();
    if (status.ok()) {
      host.sessions().Erase(id);
      return Status();
    }
    if (closed) host.recall().Open(*it->second);
    it->second->busy = unsure;
    return Status();
  });
  WEIR_RETURN_IF_ERROR(status);
  WEIR_RETURN_IF_ERROR(after);
  return true;
}

Status Handover::Leave(Host& host, const std::string& id) { return Move(host, id, /*wait=*/true).status(); }

Result<bool> Handover::LeaveIdle(Host& host, const std::string& id) { return Move(host, id, /*wait=*/false); }

bool Handover::Holds(const std::string& id) {
  if (!enabled() || !IsSessionId(id)) return false;
  const auto holds = owns_->Holds(id);
  return holds.ok() && *holds;
}

Result<std::vector<std::string>> Handover::Left() {
  std::vector<std::string> out;
  if (!enabled()) return out;
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> sessions, owns_->Sessions());
  for (const std::string& id : sessions) {
    if (!IsSessionId(id)) continue;
    WEIR_ASSIGN_OR_RETURN(const bool left, owns_->IsLeft(id));
    if (left) out.push_back(id);
  }
  return out;
}

// ---- coming

Result<bool> Handover::Take(Host& host, const std::string& id) {
  if (!enabled() || !IsSessionId(id) || host.sessions().Has(id)) return false;
  const Alone alone(*underway_, id);
  if (host.sessions().Has(id)) return false;
  return TakeAlone(host, id);
}

Result<bool> Handover::TakeAlone(Host& host, const std::string& id) {
  WEIR_ASSIGN_OR_RETURN(const Ownership::Taken taken, owns_->Take(id));
  if (taken.found != Ownership::Found::kTaken) return false;
  if (const Status made = Restore(host, id, taken.state, !options_.durable); !made.ok()) {
    (void)owns_->GiveBack(id);
    return made;
  }
  if (options_.durable) {
    Begin(id);
    return true;
  }
  // It lives on here alone. Until the store has forgotten it, others could take it, and until then it is not used here.
  const auto forgotten = owns_->Forget(id);
  if (forgotten.ok() && *forgotten) {
    WEIR_RETURN_IF_ERROR(FreeSession(host, id));
    return true;
  }
  (void)CallEngine(host, [&] {
    host.sessions().Erase(id);
    return Status();
  });
  WEIR_RETURN_IF_ERROR(forgotten.status());
  return false;
}

Status Handover::Restore(Host& host, const std::string& id, const std::string& state, bool keep_out) {
  const int64_t most = host.ledger().budget_bytes() + kMaxSnapshotText;
  WEIR_ASSIGN_OR_RETURN(const LocalFile local, store_->Fetch(state, most));
  WEIR_ASSIGN_OR_RETURN(const auto snapshot, SnapshotReader::Open(local.path(), most));
  return CallEngine(host, [&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, ReadSnapshot(host, *snapshot, id));
    stream->busy = keep_out;
    return Status();
  });
}

}  // namespace weir
