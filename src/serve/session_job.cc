#include "serve/session_job.h"

namespace weir {
namespace {

// Runs one function. Whoever posted it waits for the event, so that it may refer to what lives there.
class CallJob : public SessionJob {
 public:
  enum class Kind { kPlain, kWithSession, kDelete };
  CallJob(Host& host, std::string id, Kind kind, std::function<Status(StreamSession*)> fn)
      : SessionJob(host, std::move(id)), kind_(kind), fn_(std::move(fn)) {}

  bool TryStart() override {
    if (kind_ == Kind::kPlain) return true;
    if (kind_ == Kind::kWithSession) return SessionJob::TryStart();
    if (closing_ == nullptr) {
      closing_ = host_.Find(id_);
      if (closing_ != nullptr) closing_->closing = true;
    }
    return closing_ == nullptr || !closing_->busy;
  }
  Step Advance() override {
    if (kind_ == Kind::kWithSession && session_ == nullptr) {
      result_ = NotFound("there is no session '%s'", id_.c_str());
    } else if (kind_ == Kind::kDelete) {
      result_ = closing_ == nullptr ? NotFound("there is no session '%s'", id_.c_str()) : Status();
      if (closing_ != nullptr) host_.Erase(id_);
    } else {
      result_ = fn_(stream_);
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

Status PostAndWait(Scheduler& scheduler, const std::shared_ptr<CallJob>& job) {
  WEIR_RETURN_IF_ERROR(scheduler.PostAlways(job));
  for (;;) {
    if (auto status = job->events.Pop(std::chrono::seconds(60))) return *status;
  }
}

}  // namespace

Status Host::Call(const std::function<Status()>& fn) {
  return PostAndWait(*scheduler_,
                     std::make_shared<CallJob>(*this, "", CallJob::Kind::kPlain, [&](StreamSession*) { return fn(); }));
}

Status Host::CallWith(const std::string& id, const std::function<Status(StreamSession&)>& fn) {
  return PostAndWait(*scheduler_, std::make_shared<CallJob>(*this, id, CallJob::Kind::kWithSession,
                                                            [&](StreamSession* stream) { return fn(*stream); }));
}

Status Host::Delete(const std::string& id) {
  return PostAndWait(*scheduler_, std::make_shared<CallJob>(*this, id, CallJob::Kind::kDelete, nullptr));
}

bool SessionJob::TryStart() {
  if (id_.empty()) {
    session_ = host_.TakeAnswerPot();
    if (session_ == nullptr) return false;
    session_->Reset();
  } else {
    stream_ = host_.Find(id_);
    if (stream_ == nullptr) return true;
    if (stream_->busy) {
      stream_ = nullptr;
      return false;
    }
    stream_->busy = true;
    session_ = stream_->session.get();
  }
  before_ = session_->counters();
  return true;
}

void SessionJob::Finish() {
  if (session_ == nullptr) return;
  const SessionCounters after = session_->counters();
  if (after.selections > before_.selections) {
    host_.metrics().CountEvictions(session_->policy().info->name, after.selections - before_.selections,
                                   after.dropped - before_.dropped);
  }
  if (stream_ == nullptr) {
    host_.GiveAnswerPot(session_);
  } else {
    stream_->busy = false;
  }
  session_ = nullptr;
}

Status SessionJob::CheckGoOn() const {
  if (session_ == nullptr) return NotFound("there is no session '%s'", id_.c_str());
  if (stream_ != nullptr && stream_->closing) return NotFound("the session was deleted meanwhile");
  if (cancelled()) return Cancelled("the client went away");
  return Status();
}

void PromptReader::Start(std::vector<PromptPart> parts, bool ends_prompt) {
  parts_ = std::move(parts);
  std::erase_if(parts_, [](const PromptPart& part) { return part.tokens.empty(); });
  ends_prompt_ = ends_prompt;
  part_ = at_ = 0;
  n_read_ = 0;
}

Status PromptReader::Step(Session& session, const TensorObserver* observer) {
  const PromptPart& part = parts_[part_];
  // Stopped by itself after the first chunk: the session then still knows that more of this prompt comes.
  std::atomic<bool> stop{false};
  int64_t n_done = 0;
  Session::AppendOptions append;
  append.pinned = part.pinned;
  append.end_of_prompt = ends_prompt_ && part_ + 1 == parts_.size();
  append.stop = &stop;
  append.observer = observer;
  append.progress = [&](int64_t n) {
    n_done = n;
    stop.store(true, std::memory_order_relaxed);
  };
  const Status status = session.Append(std::span<const int32_t>(part.tokens).subspan(at_), append);
  at_ += static_cast<size_t>(n_done);
  n_read_ += n_done;
  if (!status.ok() && status.code() != StatusCode::kCancelled) return status;
  if (at_ == part.tokens.size()) {
    ++part_;
    at_ = 0;
  }
  return Status();
}

Status AppendJob::ReadSome() {
  WEIR_RETURN_IF_ERROR(CheckGoOn());
  Conversation& talk = stream_->conversation;
  if (!begun_) {
    begun_ = true;
    PromptPart head{talk.TurnHead(), false, true};
    const bool has_head = !head.tokens.empty();
    if (!has_head) talk.TurnOpened();
    PromptPart body{std::move(tokens_), pinned_, false};
    std::vector<PromptPart> parts;
    if (has_head) parts.push_back(std::move(head));
    parts.push_back(std::move(body));
    n_heads_ = has_head ? 1 : 0;
    reader_.Start(std::move(parts), false);
  }
  if (reader_.done()) return Status();
  const int64_t n_before = reader_.n_read();
  const Status status = reader_.Step(*session_);
  host_.metrics().CountRead(reader_.n_read() - n_before);
  if (reader_.part() >= n_heads_) talk.TurnOpened();
  if (reader_.part() > n_heads_ || (reader_.part() == n_heads_ && reader_.at() > 0)) talk.TextRead();
  return status;
}

Job::Step AppendJob::Advance() {
  Status status = ReadSome();
  if (status.ok() && !reader_.done()) return Step::kMore;
  if (status.ok()) {
    events.Push(SessionJson(*stream_));
  } else {
    if (status.code() == StatusCode::kCancelled) host_.metrics().CountCancelled();
    events.Push(std::move(status));
  }
  return Step::kDone;
}

}  // namespace weir
