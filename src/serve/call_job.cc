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
  enum class Kind { kPlain, kWithSession, kDelete };
  CallJob(Host& host, std::string id, Kind kind, std::function<Status(StreamSession*)> fn)
      : SessionJob(host, std::move(id)), kind_(kind), fn_(std::move(fn)) {}

  bool TryStart() override {
    if (kind_ == Kind::kPlain) return true;
    if (kind_ == Kind::kWithSession) return SessionJob::TryStart();
    if (closing_ == nullptr) {
      closing_ = host_.sessions().Find(id_);
      if (closing_ != nullptr) closing_->closing = true;
    }
    return closing_ == nullptr || !closing_->busy;
  }
  Step Advance() override {
    if (kind_ == Kind::kWithSession && session_ == nullptr) {
      result_ = NoSuchSession(id_);
    } else if (kind_ == Kind::kDelete) {
      result_ = closing_ == nullptr ? NoSuchSession(id_) : Status();
      if (closing_ != nullptr) {
        if (host_.mqtt() != nullptr) (void)Tried([&] { host_.mqtt()->Forget(id_, ""); });
        host_.sessions().Erase(id_);
      }
    } else {
      result_ = Caught([&] { return fn_(stream_); });  // what is called changes a session at its end, or not
    }
    return Step::kDone;
  }
  void Finish() override {
    if (kind_ == Kind::kWithSession) SessionJob::Finish();
    events.Push(result_);
  }
  void Dropped(const Status& why) override { events.Push(why); }

  Channel<Status> events;

 private:
  const Kind kind_;
  const std::function<Status(StreamSession*)> fn_;
  StreamSession* closing_ = nullptr;
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

Status DeleteSession(Host& host, const std::string& id) {
  return PostAndWait(host, std::make_shared<CallJob>(host, id, CallJob::Kind::kDelete, nullptr));
}

}  // namespace weir
