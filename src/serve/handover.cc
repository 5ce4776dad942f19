// SPDX-License-Identifier: Apache-2.0
#include "serve/handover.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

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

 private:
  Underway& all_;
  const std::string id_;
};

namespace {

// A session's file that this server alone takes. The lock ends with the process: a server that is killed in the middle
// leaves the session to the others.
class Claim {
 public:
  // Without the file if there is none or another server takes it. kIo if it cannot be locked.
  static Result<Claim> Make(const std::string& path) {
    Claim out(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (out.fd_ < 0 && errno == ENOENT) return out;
    if (out.fd_ < 0) return IoError("cannot take the session over: {}", std::strerror(errno));
    const bool locked = flock(out.fd_, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK) return IoError("cannot lock the session's file: {}", std::strerror(errno));
    // Another server may have taken and removed it between open and lock.
    struct stat mine {
    }, named{};
    if (locked && fstat(out.fd_, &mine) == 0 && stat(path.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
        mine.st_dev == named.st_dev) {
      return out;
    }
    return Claim(-1);
  }
  Claim(Claim&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Claim() {
    if (fd_ >= 0) close(fd_);
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  bool holds() const { return fd_ >= 0; }

 private:
  explicit Claim(int fd) : fd_(fd) {}
  int fd_;
};

// Whether files of the folder can be locked; some network file systems cannot.
Status CheckLocks(const std::string& folder) {
  const std::string path = folder + "/.lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool can = fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno == EWOULDBLOCK);
  const int error = errno;
  if (fd >= 0) close(fd);
  (void)std::remove(path.c_str());
  if (can) return Status();
  return IoError("cannot lock files in {}: {}; handing sessions over needs a file system with locks", folder,
                 std::strerror(error));
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

Result<Handover> Handover::Make(const std::string& folder) {
  if (folder.empty()) return Handover("");
  const std::string path = folder + "/handover";
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return IoError("cannot make {}: {}", path, std::strerror(errno));
  }
  WEIR_RETURN_IF_ERROR(CheckLocks(path));
  Adopt(path);
  return Handover(path);
}

// On the engine's thread: nothing can read or change the session while it is written.
Status Handover::Write(Host& host, StreamSession& stream) const {
  WEIR_ASSIGN_OR_RETURN(const auto saved, host.recall().Save(stream));
  std::vector<WebhookQueue::Event> leaving;
  if (host.webhooks() != nullptr) leaving = host.webhooks()->Hold(stream.id);
  const auto write = [&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(const auto file, WriteSnapshot(host, stream, saved.note, leaving, PathOf(stream.id)));
    host.recall().Close(stream);
    Status status = file->Finish();
    if (!status.ok()) host.recall().Open(stream);
    return status;
  };
  Status status = write();
  if (host.webhooks() != nullptr) host.webhooks()->Release(stream.id, status.ok());
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

std::vector<std::string> Handover::Sessions() const {
  constexpr std::string_view kEnd = ".weir";
  std::vector<std::string> out;
  std::error_code error;
  if (!enabled()) return out;
  for (std::filesystem::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.ends_with(kEnd)) continue;
    if (std::string id = name.substr(0, name.size() - kEnd.size()); IsSessionId(id)) out.push_back(std::move(id));
  }
  return out;
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
  WEIR_ASSIGN_OR_RETURN(const Claim claim, Claim::Make(path));
  if (!claim.holds()) return false;
  WEIR_ASSIGN_OR_RETURN(const auto snapshot,
                        SnapshotReader::Open(path, host.ledger().budget_bytes() + kMaxSnapshotText));
  // Removed on the engine's thread as well: from the moment that the session runs here it may be written again.
  WEIR_RETURN_IF_ERROR(CallEngine(host, [&]() -> Status {
    WEIR_RETURN_IF_ERROR(ReadSnapshot(host, *snapshot, id).status());
    (void)std::remove(path.c_str());
    return Status();
  }));
  return true;
}

}  // namespace weir
