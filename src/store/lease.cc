// SPDX-License-Identifier: Apache-2.0
#include "store/lease.h"

#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "io/json.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kSoon{100};  // after a renewal that failed
constexpr size_t kMostWatched = 1 << 16;

std::string KeyOf(const std::string& id) { return "leases/" + id; }

Result<std::string> NewId(const std::string& node) {
  uint64_t random = 0;
  if (getrandom(&random, sizeof(random), 0) != sizeof(random)) return IoError("the system provides no random numbers");
  return fmt::format("{}{}{:016x}", node, node.empty() ? "" : "-", random);
}

}  // namespace

std::chrono::milliseconds BootTime() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::milliseconds(int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000);
}

Lease::Lease(Store& store, std::string node, std::chrono::milliseconds time, std::function<void()> on_lost)
    : store_(store), node_(std::move(node)), time_(time), on_lost_(std::move(on_lost)) {}

Result<std::unique_ptr<Lease>> Lease::Make(Store& store, const std::string& node, std::chrono::milliseconds time,
                                           std::function<void()> on_lost) {
  if (time < kShortest)
    return InvalidArgument("a lease of {} ms is too short: at least {}", time.count(), kShortest.count());
  std::unique_ptr<Lease> out(new Lease(store, node, time, std::move(on_lost)));
  WEIR_RETURN_IF_ERROR(out->Take());
  // Some storage accepts these conditions and ignores them.
  const std::string key = KeyOf(out->id_);
  WEIR_ASSIGN_OR_RETURN(const auto again, store.Write(key, out->Text(-1), ""));
  WEIR_ASSIGN_OR_RETURN(const auto newer, store.Write(key, out->Text(1), out->version_));
  if (!again && newer) {
    WEIR_ASSIGN_OR_RETURN(const auto stale, store.Write(key, out->Text(-2), out->version_));
    if (!stale) {
      out->version_ = *newer;
      out->n_ = 1;
      out->thread_ = std::thread([lease = out.get()] { TryUntilDone([&] { lease->Renew(); }); });
      return out;
    }
  }
  (void)store.Remove(key);
  out->ended_ = true;
  return Unsupported(
      "this store does not keep conditional writes (If-None-Match, If-Match), so that two servers could "
      "own one session: use one that does");
}

Lease::~Lease() { End(); }

std::string Lease::Text(int64_t n) const { return JsonText({{"lease_ms", time_.count()}, {"node", node_}, {"n", n}}); }

Status Lease::Take() {
  WEIR_ASSIGN_OR_RETURN(std::string id, NewId(node_));
  const auto sent = BootTime();
  WEIR_ASSIGN_OR_RETURN(const auto version, store_.Write(KeyOf(id), Text(0), ""));
  if (!version) return IoError("the lease {} is there already", id);
  const std::lock_guard<std::mutex> lock(mutex_);
  id_ = std::move(id);
  version_ = *version;
  n_ = 0;
  valid_until_ = sent + time_ - time_ / 8;
  return Status();
}

void Lease::Renew() {
  std::unique_lock<std::mutex> lock(mutex_);
  auto pause = time_ / 3;
  while (!ended_) {
    wake_.wait_for(lock, pause, [this] { return ended_; });
    if (ended_) return;
    pause = kSoon;
    if (lost_) {
      lock.unlock();
      if (!dropped_ && on_lost_) on_lost_();
      dropped_ = true;
      const bool taken = Take().ok();
      lock.lock();
      lost_ = !taken;
      if (taken) pause = time_ / 3;
      continue;
    }
    const std::string key = KeyOf(id_), text = Text(n_ + 1), version = version_;
    ++n_;
    lock.unlock();
    const auto sent = BootTime();
    const auto renewed = store_.Write(key, text, version);
    lock.lock();
    if (!renewed.ok()) continue;
    if (*renewed) {
      version_ = **renewed;
      valid_until_ = sent + time_ - time_ / 8;
      pause = std::max(kSoon, time_ / 3 - (BootTime() - sent));
      continue;
    }
    // A renewal that failed may have been written after all.
    lock.unlock();
    const auto there = store_.Read(key);
    lock.lock();
    if (!there.ok()) continue;
    const auto said = there->version.empty() ? Result<Json>(Json()) : ParseJsonObject(there->text);
    if (said.ok() && said->contains("n") && !said->contains("revoked")) {
      version_ = there->version;  // its time counts from the next renewal
      continue;
    }
    lost_ = true;
    dropped_ = false;
    valid_until_ = std::chrono::milliseconds(0);
    pause = std::chrono::milliseconds(0);
  }
}

std::string Lease::id() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return id_;
}

bool Lease::Valid() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return BootTime() < valid_until_;
}

void Lease::End() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended_) return;
    ended_ = true;
    valid_until_ = std::chrono::milliseconds(0);
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (!id_.empty()) (void)store_.Remove(KeyOf(id_));
}

Result<bool> LeaseWatch::Ended(const std::string& id) {
  WEIR_ASSIGN_OR_RETURN(const Store::Note note, store_.Read(KeyOf(id)));
  if (note.version.empty()) return true;
  WEIR_ASSIGN_OR_RETURN(const Json lease, ParseJsonObject(note.text));
  if (lease.contains("revoked")) return true;
  const int64_t time_ms = lease.value("lease_ms", int64_t{0});
  const auto now = BootTime();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (seen_.size() > kMostWatched) seen_.clear();  // then their time begins again
    Seen& seen = seen_[id];
    if (seen.version != note.version) {
      seen = {note.version, now};
      return false;
    }
    if (now - seen.since < std::chrono::milliseconds(time_ms)) return false;
  }
  Json revoked = lease;
  revoked["revoked"] = true;
  WEIR_ASSIGN_OR_RETURN(const auto done, store_.Write(KeyOf(id), JsonText(revoked), note.version));
  const std::lock_guard<std::mutex> lock(mutex_);
  seen_.erase(id);
  if (done) (void)store_.Remove(KeyOf(id), *done);  // nothing says the same
  return done.has_value();
}

}  // namespace weir
