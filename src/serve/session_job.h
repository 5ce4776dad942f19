// SPDX-License-Identifier: Apache-2.0
// Jobs on one session: their base class, and the short ones.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chat/prompt_reader.h"
#include "engine/session.h"
#include "serve/channel.h"
#include "serve/host.h"
#include "serve/request_trace.h"
#include "serve/scheduler.h"
#include "serve/visual_feed.h"

namespace weir {

// Works on a stream session (by id) or, without an id, on an answer pot. Acquires and releases it and counts forgotten
// tokens. A job whose prompt has pictures also acquires a lane (serve/decode_lanes.h).
class SessionJob : public Job {
 public:
  SessionJob(Host& host, std::string id, std::vector<VisualInput> visuals = {})
      : host_(host), id_(std::move(id)), trace_(RequestTrace::Current()), visuals_(std::move(visuals)) {
    if (!visuals_.empty()) ticket_.emplace(*host_.vision()->lanes);
  }
  bool TryStart() override;
  bool Ready() override { return (stream_ != nullptr && stream_->closing) || host_.hurry() || reader_.Ready(); }
  void Finish() override;
  // What was under way may be half done: the session ends, a pot is emptied.
  void Abandon(const Status& why) override;

 protected:
  // The prompt for prefix reuse: an acquired answer pot may already hold a part of it, and later jobs may reuse it
  // after the pot is released. Empty: no reuse.
  virtual std::span<const PromptPart> Reusable() const { return {}; }
  // Whether to stop at the next opportunity, and why. Ok: continue.
  Status CheckGoOn() const;
  // Starts reading `body` as part of the open turn, or opens one. t_ms -1: the current stream time. REQUIRES: stream_
  // != nullptr.
  void StartTurn(PromptPart body, PictureSource* pictures, int64_t t_ms);
  // Before a session reads anything but frames: reads one that waits for the next (FrameStore::Interrupt()).
  Status EndFrames();
  // The session has read all of what came: asks its rules, if it has any, in steps. True when none is left to ask.
  bool CheckRules();
  // Whether the job may change the session, so that a server that keeps it has to store it again.
  virtual bool Changes() const { return true; }
  // Reads one step of the prompt, counts it, and updates the session's clock.
  Status ReadStep(const TensorObserver* observer = nullptr);

  Host& host_;
  const std::string id_;
  Session* session_ = nullptr;       // nullptr after TryStart() if there is no session of that id
  StreamSession* stream_ = nullptr;  // nullptr for an answer pot
  std::unique_ptr<VisualFeed> feed_;
  PromptReader reader_;
  std::shared_ptr<RequestTrace> trace_;  // of the request that it works for; may be nullptr
  bool tells_ = false;                   // its wait and its reading are spans of the trace
  const Clock::time_point made_at_ = Clock::now();
  int64_t n_selections_ = 0, n_evicted_ = 0;  // in the job's time; known after Finish()
  std::optional<int64_t> rows_pruned_;        // of what reader_ read; nullopt without a pruner

 private:
  std::vector<VisualInput> visuals_;
  std::optional<DecodeLanes::Ticket> ticket_;  // for a lane, while it waits for one
  Status feed_status_;
  SessionCounters before_;
  RuleSet::Part asked_;
  bool checked_ = false;
  Clock::time_point started_at_;
};

// Reads the beginning of a new session. The channel receives one event: the session as JSON, or an error, after which
// the session is erased.
class BeginJob : public SessionJob {
 public:
  BeginJob(Host& host, std::string id, std::vector<int32_t> tokens, bool pinned)
      : SessionJob(host, std::move(id)), head_{std::move(tokens), pinned, false, false} {
    tells_ = true;
  }
  Step Advance() override;
  void Finish() override;
  void Dropped(const Status& why) override;

  Channel<Result<Json>> events;

 private:
  void Forget();

  PromptPart head_;
  bool begun_ = false;
  Result<Json> result_ = Json();
};

// Appends a text or pictures to a stream session. The channel receives one event: the session as JSON, or an error.
class AppendJob : public SessionJob {
 public:
  AppendJob(Host& host, std::string id, std::vector<int32_t> tokens, bool pinned)
      : SessionJob(host, std::move(id)), body_{std::move(tokens), pinned, false, false} {
    tells_ = true;
  }
  // A picture or video that begins at stream time t_ms; -1: the current stream time.
  AppendJob(Host& host, std::string id, VisualInput input, bool pinned, int64_t t_ms)
      : SessionJob(host, std::move(id), Listed(std::move(input))), body_{{}, pinned, false, true}, t_ms_(t_ms) {
    tells_ = true;
  }
  Step Advance() override;
  void Dropped(const Status& why) override { events.Push(why); }

  Channel<Result<Json>> events;
  // Whether any of it was read. Call after the event.
  bool has_read() const { return reader_.n_read() > 0; }

 private:
  static std::vector<VisualInput> Listed(VisualInput input) {
    std::vector<VisualInput> out;
    out.push_back(std::move(input));
    return out;
  }
  Status ReadSome();
  PromptPart body_;
  const int64_t t_ms_ = -1;
  bool begun_ = false, read_ = false;
};

// Reads one frame of a session's live video and posts a job for the next one. No caller waits for it.
class FrameJob : public SessionJob {
 public:
  FrameJob(Host& host, std::string id, std::shared_ptr<FrameQueue> queue)
      : SessionJob(host, std::move(id)), queue_(std::move(queue)), source_(*this) {
    trace_.reset();  // it may outlast the request that brought the frame
  }
  Step Advance() override;
  void Finish() override;
  void Dropped(const Status& why) override { (void)queue_->Pause(why); }

 private:
  // One frame is one part.
  class OneFrame : public PictureSource {
   public:
    explicit OneFrame(FrameJob& job) : job_(job) {}
    bool Ready() override { return true; }
    Result<std::optional<int64_t>> ReadNext(Session& session, const Session::AppendOptions& append) override;

   private:
    FrameJob& job_;
    bool read_ = false;
  };
  const std::shared_ptr<FrameQueue> queue_;
  OneFrame source_;
  bool begun_ = false;
  Status status_;
};

}  // namespace weir
