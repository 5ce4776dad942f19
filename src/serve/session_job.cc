// SPDX-License-Identifier: Apache-2.0
#include "serve/session_job.h"

#include "base/caught.h"
#include "serve/session_json.h"

namespace weir {

bool SessionJob::TryStart() {
  StreamSession* const stream = id_.empty() ? nullptr : host_.sessions().Find(id_);
  if (!id_.empty() && stream == nullptr) {
    ticket_.reset();
    return true;
  }
  const bool can_start = stream != nullptr ? !stream->busy : host_.pots().HasFree();
  std::optional<DecodeLanes::Lane> lane;
  if (ticket_) {
    // A job that cannot start yet must not block others from a lane.
    if (can_start) {
      lane = host_.vision()->lanes->Take(*ticket_, std::chrono::milliseconds(0));
    } else {
      ticket_->StepAside();
    }
    if (!lane) return false;
    ticket_.reset();
  }
  if (!can_start) return false;
  if (stream == nullptr) {
    session_ = host_.pots().Take(Reusable());
  } else {
    stream_ = stream;
    stream_->busy = true;
    session_ = stream_->session.get();
  }
  before_ = session_->counters();
  started_at_ = Clock::now();
  if (lane) {
    // In a whole prompt videos are read in their places; in a stream their frames join the stream's, and a question is
    // about all of them.
    const auto videos = stream_ == nullptr ? VisualFeed::Videos::kWhole : VisualFeed::Videos::kOfStream;
    FrameStore& kept = stream_ == nullptr ? host_.pots().KeptFrames(*session_) : *stream_->kept_frames;
    if (stream_ == nullptr) kept.Forget();
    EventPictures* const pictures =
        stream_ == nullptr || stream_->rules == nullptr ? nullptr : stream_->rules->pictures.get();
    auto feed = VisualFeed::Start(*host_.vision(), *std::move(lane), kept, videos, pictures, std::move(visuals_),
                                  [&scheduler = host_.scheduler()] { scheduler.Wake(); });
    feed_status_ = feed.status();
    if (feed.ok()) feed_ = *std::move(feed);
  }
  return true;
}

void SessionJob::Finish() {
  feed_.reset();
  if (session_ == nullptr) return;
  const SessionCounters after = session_->counters();
  n_selections_ = after.selections - before_.selections;
  n_evicted_ = after.dropped - before_.dropped;
  if (n_selections_ > 0) {
    (void)Tried([&] { host_.metrics().CountEvictions(session_->policy().info->name, n_selections_, n_evicted_); });
  }
  if (tells_ && trace_ != nullptr) {
    (void)Tried([&] {
      trace_->CountTokens(reader_.n_read(), 0);
      trace_->Add("wait", made_at_, started_at_);
      trace_->Add("read", started_at_, Clock::now(),
                  {{"weir.tokens.read", reader_.n_read()},
                   {"weir.tokens.kept", after.kept},
                   {"weir.selections", n_selections_},
                   {"weir.tokens.evicted", n_evicted_}});
    });
  }
  if (stream_ == nullptr) {
    if (Reusable().empty()) session_->Reset();  // not reusable
    host_.pots().Give(session_);
  } else {
    // What was read is found by the next question, and survives the death of the process.
    if (stream_->recall != nullptr && stream_->recall->stream != nullptr) stream_->recall->stream->Flush();
    stream_->n_changes += Changes();
    stream_->busy = false;
    stream_->used_at = Clock::now();
  }
  session_ = nullptr;
}

void SessionJob::Abandon(const Status& why) {
  feed_.reset();
  if (session_ != nullptr && stream_ == nullptr) {
    session_->Reset();
    host_.pots().Give(session_);
  } else if (session_ != nullptr) {
    stream_->busy = false;
    if (!stream_->closing) host_.sessions().Erase(id_);  // else the one who closes it does
    stream_ = nullptr;
  }
  session_ = nullptr;
  Dropped(why);
}

Status SessionJob::CheckGoOn() const {
  if (session_ == nullptr) return NotFound("there is no session '{}'", id_);
  if (stream_ != nullptr && stream_->closing) return NotFound("the session was deleted in the meantime");
  if (cancelled()) return Cancelled("the client disconnected");
  if (host_.hurry()) return Cancelled("the server is stopping");
  return feed_status_;
}

Status SessionJob::ReadStep(const TensorObserver* observer) {
  const int64_t n_before = reader_.n_read();
  const PictureEncoder* const encoder = host_.vision() == nullptr ? nullptr : host_.vision()->encoder.get();
  const int64_t n_pruned = encoder == nullptr ? 0 : encoder->n_pruned();
  const std::function<void()> between = [&scheduler = host_.scheduler()] { scheduler.Interject(); };
  const Status status = reader_.Step(*session_, observer, &between);
  host_.metrics().CountRead(reader_.n_read() - n_before);
  if (encoder != nullptr && encoder->pruner().info != nullptr) {
    rows_pruned_ = rows_pruned_.value_or(0) + encoder->n_pruned() - n_pruned;
    if (stream_ != nullptr) stream_->rows_pruned = stream_->rows_pruned.value_or(0) + encoder->n_pruned() - n_pruned;
  }
  if (stream_ != nullptr) stream_->t_ms = std::max(stream_->t_ms, reader_.t_ms());
  if (reader_.done()) feed_.reset();  // its lane is free while an answer is written
  return status;
}

void SessionJob::StartTurn(PromptPart body, PictureSource* pictures, int64_t t_ms) {
  Conversation& talk = stream_->conversation;
  reader_.Start(OpenTurn(talk, std::move(body)), talk, pictures, t_ms < 0 ? stream_->t_ms : t_ms);
}

Status SessionJob::EndFrames() {
  if (stream_ == nullptr || stream_->kept_frames == nullptr) return Status();
  const int64_t n_before = session_->n_seen();
  Session::AppendOptions append;
  append.t_src_ms = stream_->t_ms;
  const Status status = stream_->kept_frames->Interrupt(*host_.vision()->encoder, *session_, append);
  host_.metrics().CountRead(session_->n_seen() - n_before);
  return status;
}

bool SessionJob::CheckRules() {
  if (!checked_ && stream_->rules != nullptr && !stream_->rules->set.empty()) {
    if (const Status status = EndFrames(); !status.ok()) {
      stream_->rules->trouble = status.message();
      checked_ = true;
    }
  }
  checked_ = checked_ || stream_->rules == nullptr ||
             stream_->rules->Check(id_, *session_, stream_->conversation, stream_->t_ms,
                                   trace_ == nullptr ? std::string() : TraceParentText(trace_->context()), &asked_);
  return checked_;
}

Status AppendJob::ReadSome() {
  WEIR_RETURN_IF_ERROR(CheckGoOn());
  if (!begun_) {
    begun_ = true;
    if (!body_.visual) WEIR_RETURN_IF_ERROR(EndFrames());
    StartTurn(std::move(body_), feed_.get(), t_ms_);
  }
  return reader_.done() ? Status() : ReadStep();
}

Job::Step AppendJob::Advance() {
  if (!read_) {
    Status status = ReadSome();
    if (!status.ok()) {
      if (status.code() == StatusCode::kCancelled) host_.metrics().CountCancelled();
      events.Push(std::move(status));
      return Step::kDone;
    }
    read_ = reader_.done();
    if (!read_ || stream_->rules != nullptr) return Step::kMore;
  }
  // All of it was read: that is the answer, whatever ends the check.
  if (CheckGoOn().ok() && !CheckRules()) return Step::kMore;
  events.Push(SessionJson(*stream_));
  return Step::kDone;
}

Job::Step BeginJob::Advance() {
  Status status = CheckGoOn();
  if (status.ok() && !begun_) {
    begun_ = true;
    std::vector<PromptPart> head;
    head.push_back(std::move(head_));
    reader_.Start(std::move(head), false, nullptr, 0);
  }
  if (status.ok() && !reader_.done()) status = ReadStep();
  if (status.ok() && !reader_.done()) return Step::kMore;
  if (status.ok()) {
    result_ = SessionJson(*stream_);
  } else {
    result_ = std::move(status);
  }
  return Step::kDone;
}

void BeginJob::Finish() {
  SessionJob::Finish();
  if (!result_.ok()) Forget();
  events.Push(std::move(result_));
}

void BeginJob::Forget() {
  const StreamSession* const stream = host_.sessions().Find(id_);  // not one that is being deleted
  if (stream != nullptr && !stream->busy) host_.sessions().Erase(id_);
}

void BeginJob::Dropped(const Status& why) {
  Forget();
  events.Push(why);
}

Result<std::optional<int64_t>> FrameJob::OneFrame::ReadNext(Session& session, const Session::AppendOptions& append) {
  if (std::exchange(read_, true)) return std::optional<int64_t>();
  const StreamSession& stream = *job_.stream_;
  EventPictures* const pictures = stream.rules == nullptr ? nullptr : stream.rules->pictures.get();
  return job_.queue_->Read(*stream.kept_frames, session, append, pictures);
}

Job::Step FrameJob::Advance() {
  status_ = reader_.may_stop() ? CheckGoOn() : Status();
  if (status_.ok() && !begun_) {
    begun_ = true;
    StartTurn({{}, false, false, true}, &source_, -1);
  }
  if (!status_.ok()) return Step::kDone;
  if (!reader_.done()) {
    status_ = ReadStep();
    return status_.ok() ? Step::kMore : Step::kDone;
  }
  return CheckRules() ? Step::kDone : Step::kMore;
}

void FrameJob::Finish() {
  SessionJob::Finish();
  // Posted after jobs that already wait for the session, so that a question can run between two frames.
  if (!queue_->Pause(status_)) return;
  auto next = std::make_shared<FrameJob>(host_, id_, queue_);
  if (const Status posted = host_.scheduler().PostAlways(next); !posted.ok()) next->Dropped(posted);
}

}  // namespace weir
