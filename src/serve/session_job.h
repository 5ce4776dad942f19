// Jobs on one session: what they share, and the short ones.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/session.h"
#include "serve/channel.h"
#include "serve/host.h"
#include "serve/scheduler.h"

namespace weir {

// Works on a stream session (by id) or, without an id, on an answer pot. Takes it, gives it back, counts what was
// forgotten.
class SessionJob : public Job {
 public:
  SessionJob(Host& host, std::string id) : host_(host), id_(std::move(id)) {}
  bool TryStart() override;
  void Finish() override;

 protected:
  // Whether to stop at the next opportunity, and why. Ok: go on.
  Status CheckGoOn() const;

  Host& host_;
  const std::string id_;
  Session* session_ = nullptr;       // nullptr after TryStart(): there is no session of that id
  StreamSession* stream_ = nullptr;  // nullptr for an answer pot

 private:
  SessionCounters before_;
};

// Tokens to read, in order.
struct PromptPart {
  std::vector<int32_t> tokens;
  bool pinned = false;
  bool whole = false;  // not to be cut short once it began: half of it would leave a turn that neither ends nor goes on
};

// Reads parts chunk by chunk, with the bytes that one Session::Append() of each part would give.
class PromptReader {
 public:
  // `ends_prompt`: the last token ends a prompt (Session::AppendOptions::end_of_prompt).
  void Start(std::vector<PromptPart> parts, bool ends_prompt);
  bool done() const { return part_ == parts_.size(); }
  // Whether what comes next may be left away.
  bool may_stop() const { return done() || !parts_[part_].whole || at_ == 0; }
  size_t part() const { return part_; }  // index of the part that comes next
  size_t at() const { return at_; }      // tokens of it already read
  int64_t n_read() const { return n_read_; }

  // One chunk. REQUIRES: !done().
  Status Step(Session& session, const TensorObserver* observer = nullptr);

 private:
  std::vector<PromptPart> parts_;
  bool ends_prompt_ = false;
  size_t part_ = 0, at_ = 0;
  int64_t n_read_ = 0;
};

// A text for a stream session. The channel gets one event: the session as JSON, or why not.
class AppendJob : public SessionJob {
 public:
  AppendJob(Host& host, std::string id, std::vector<int32_t> tokens, bool pinned)
      : SessionJob(host, std::move(id)), tokens_(std::move(tokens)), pinned_(pinned) {}
  Step Advance() override;
  void Dropped(const Status& why) override { events.Push(why); }

  Channel<Result<Json>> events;

 private:
  Status ReadSome();
  std::vector<int32_t> tokens_;
  const bool pinned_;
  bool begun_ = false;
  size_t n_heads_ = 0;  // parts before the text
  PromptReader reader_;
};

}  // namespace weir
