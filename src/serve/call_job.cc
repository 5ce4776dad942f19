// SPDX-License-Identifier: Apache-2.0
#include "serve/call_job.h"

#include <chrono>
#include <memory>
#include <utility>

#include "base/caught.h"
#include "serve/channel.h"
#include "serve/session_job.h"

namespace weir {
namespace {

Status NoSuchSession(const std::string& id) { return NotFound("there is no session '{}'", id); }

// Runs one function. The caller waits for the event, so the function may refer to the caller's stack.
class CallJob : public SessionJob {
 public:
  enum class Kind { kPlain, kWithSession, kToStore, kToHold, kDelete, kDrop };
  CallJob(Host& host, std::string id, Kind kind, std::function<Status(StreamSession*)> fn)
      : SessionJob(host, std::move(id)), kind_(kind), fn_(std::move(fn)) {}

  bool TryStart() override {
    if (kind_ == Kind::kPlain) return true;
    if (OnSession()) return SessionJob::TryStart();
    if (!closes_) {
      StreamSession* const closing = host_.sessions().Find(id_);
      if (closing == nullptr) return true;
      closes_ = closing->closing = true;
    }
    // It may leave for another server meanwhile.
    const auto it = host_.sessions().all().find(id_);
    closes_ = it != host_.sessions().all().end();
    return !closes_ || !it->second->busy;
  }
  Step Advance() override {
    if (OnSession() && session_ == nullptr) {
      result_ = NoSuchSession(id_);
    } else if (kind_ == Kind::kDelete || kind_ == Kind::kDrop) {
      result_ = closes_ ? Status() : NoSuchSession(id_);
      if (closes_) {
        if (host_.mqtt() != nullptr && kind_ == Kind::kDelete) (void)Tried([&] { host_.mqtt()->Forget(id_, ""); });
        host_.sessions().Erase(id_);
      }
    } else {
      result_ = Caught([&] { return fn_(stream_); });  // what is called changes a session at its end, or not
    }
    return Step::kDone;
  }
  void Finish() override {
    StreamSession* const stream = stream_;
    if (OnSession()) SessionJob::Finish();
    if (kind_ == Kind::kToHold && stream != nullptr && result_.ok()) stream->busy = true;
    events.Push(result_);
  }
  void Dropped(const Status& why) override { events.Push(why); }

  Channel<Status> events;

 protected:
  bool Changes() const override { return kind_ == Kind::kWithSession; }

 private:
  bool OnSession() const { return kind_ == Kind::kWithSession || kind_ == Kind::kToStore || kind_ == Kind::kToHold; }

  const Kind kind_;
  const std::function<Status(StreamSession*)> fn_;
  bool closes_ = false;
  Status result_;
};

// Returns only when the job is over, because it refers to this stack frame.
Status PostAndWait(Host& host, const std::shared_ptr<CallJob>& job, const std::function<bool()>& wanted = nullptr) {
  WEIR_RETURN_IF_ERROR(host.scheduler().PostAlways(job));
  for (;;) {
    if (auto status = job->events.Pop(std::chrono::milliseconds(100))) return *status;
    if (wanted && !wanted()) job->Cancel();
  }
}

}  // namespace

Status CallEngine(Host& host, const std::function<Status()>& fn) {
  return PostAndWait(host,
                     std::make_shared<CallJob>(host, "", CallJob::Kind::kPlain, [&](StreamSession*) { return fn(); }));
}

Status LookAtSession(Host& host, const std::string& id, const std::function<void(const StreamSession&)>& fn) {
  return CallEngine(host, [&] {
    const StreamSession* const stream = host.sessions().Find(id);
    if (stream == nullptr) return NoSuchSession(id);
    fn(*stream);
    return Status();
  });
}

Status CallWithSession(Host& host, const std::string& id, const std::function<Status(StreamSession&)>& fn,
                       const std::function<bool()>& wanted) {
  const auto job = std::make_shared<CallJob>(host, id, CallJob::Kind::kWithSession,
                                             [&](StreamSession* stream) { return fn(*stream); });
  return PostAndWait(host, job, wanted);
}

Status CallToStore(Host& host, const std::string& id, bool hold, const std::function<Status(StreamSession&)>& fn) {
  const auto kind = hold ? CallJob::Kind::kToHold : CallJob::Kind::kToStore;
  return PostAndWait(host,
                     std::make_shared<CallJob>(host, id, kind, [&](StreamSession* stream) { return fn(*stream); }));
}

Status FreeSession(Host& host, const std::string& id) {
  return CallEngine(host, [&] {
    const auto it = host.sessions().all().find(id);
    if (it != host.sessions().all().end()) it->second->busy = false;
    return Status();
  });
}

Status DropSession(Host& host, const std::string& id) {
  return PostAndWait(host, std::make_shared<CallJob>(host, id, CallJob::Kind::kDrop, nullptr));
}

Status DeleteSession(Host& host, const std::string& id) {
  WEIR_RETURN_IF_ERROR(PostAndWait(host, std::make_shared<CallJob>(host, id, CallJob::Kind::kDelete, nullptr)));
  return host.Deleted(id);
}

}  // namespace weir
