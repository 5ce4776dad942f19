// The host: one model, a fixed budget of bytes, and the sessions that fit into it.
//
// A few pots (`answer_pots`) are made at the start and lent to requests that bring their whole prompt; the rest of the
// budget goes to stream sessions, each with a pot of its own for as long as it lives. Every session's plan is reserved
// in one ledger before it is made, so that the budget admits exactly as many as it holds, and a request that is refused
// is told in figures.
//
// Methods marked [engine] run on the scheduler's thread only; the rest is immutable or thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "chat/conversation.h"
#include "chat/score.h"
#include "engine/eyes.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "engine/step_batch.h"
#include "io/json.h"
#include "io/snapshot.h"
#include "serve/frame_queue.h"
#include "serve/metrics.h"
#include "serve/scheduler.h"
#include "serve/shared_eyes.h"
#include "text/chat_template.h"

namespace weir {

struct PromptPart;

struct HostOptions {
  SessionOptions session;     // of whatever asks for nothing else; probe is filled in here
  std::string chat_template;  // name; empty: the file's
  std::string model_name;     // what /v1/models says
  int answer_pots = 2;
  bool cache_prompt = true;  // prompts go on from what an answer pot still holds (chat/prompt_reuse.h)
  int max_together = 8;      // answers that are written in one forward pass; 1: each by itself
  int max_waiting = 256;     // jobs
  int64_t budget_bytes = 0;  // of all sessions and what they share; 0: as much as answer_pots + 8 default sessions need
  LoadedEncoder* encoder = nullptr;  // nullptr: no pictures. Outlives the host
  SharedEyesOptions eyes;
  std::string node;        // part of every session's id: which of several servers made it. Letters, digits
  int frames_waiting = 4;  // of a session's live video, where its request says nothing
};

// A stream session. [engine]
struct StreamSession {
  std::string id;
  std::unique_ptr<Session> session;
  Conversation conversation;
  SessionOptions options;
  Reservation reservation;             // of the host's ledger
  int64_t created_s = 0;               // Unix time
  std::shared_ptr<FrameQueue> frames;  // nullptr: no live video. Requests hold it, too, while they bring a frame
  int64_t t_ms = 0;                    // the moment of the last picture that was read
  std::optional<int64_t> rows_pruned;  // of its pictures; nothing where nobody prunes
  // When a request last named it, or a job on it ended.
  std::chrono::steady_clock::time_point used_at = std::chrono::steady_clock::now();
  bool busy = false;     // a job works on it
  bool closing = false;  // it is being deleted: jobs end at their next step
};

class Host {
 public:
  // kOverBudget when the answer pots do not fit, kInvalidArgument for a policy of more than 4 KiB; errors of
  // PlanSession and Session::Make. A chat template that is missing is no error (chat() is then nullptr), one that is
  // named and unknown is.
  static Result<std::unique_ptr<Host>> Make(LoadedModel& model, HostOptions options);
  ~Host();

  LoadedModel& model() const { return model_; }
  const Tokenizer& tokenizer() const { return model_.tokenizer(); }
  const ChatTemplate* chat() const { return chat_ ? &*chat_ : nullptr; }
  const HostOptions& options() const { return options_; }
  // Of a session of the default kind; what it takes of the budget.
  const SessionPlan& plan() const { return plan_; }
  int64_t session_bytes() const { return plan_.total_bytes + QueueBytes(options_.frames_waiting); }
  // Of a session's queue for a live video; 0 without an encoder.
  int64_t QueueBytes(int n_waiting) const;
  const Ledger& ledger() const { return ledger_; }
  Scheduler& scheduler() { return *scheduler_; }
  Metrics& metrics() { return metrics_; }
  // nullptr without an encoder.
  SharedEyes* eyes() const { return eyes_.get(); }
  // Names the weights: snapshots of another model are refused.
  const std::string& fingerprint() const { return fingerprint_; }

  // Runs `fn` on the engine's thread and waits for it. With an id, the session is waited for and handed over; kNotFound
  // when there is none, kCancelled when `wanted` (nullptr: always true) says so while it is waited for.
  Status Call(const std::function<Status()>& fn);
  Status CallWith(const std::string& id, const std::function<Status(StreamSession&)>& fn,
                  const std::function<bool()>& wanted = nullptr);
  // The same, but a job that works on the session is told to end first, and nobody gets the session afterwards.
  Status Delete(const std::string& id);

  // Whether there is a session of that id, which may end at any moment. Any thread; the engine is not waited for.
  bool Has(const std::string& id) const {
    const std::lock_guard<std::mutex> lock(sessions_mutex_);
    return sessions_.contains(id);
  }
  // Jobs on sessions and answer pots end at their next step. Any thread.
  void Hurry() { hurry_ = true; }
  bool hurry() const { return hurry_; }

  // [engine] From here on.
  // The default kind with another policy or pot. kInvalidArgument for a policy that names a profile (requests open no
  // files) or has more than 4 KiB with its options written out.
  Result<SessionOptions> OptionsFor(const std::string& policy, int64_t pot) const;
  // kOverBudget with figures when the budget lacks the bytes.
  // `n_waiting`: frames of a live video that may wait, -1 as many as the host's options say, 0 no live video.
  // Empty id: a new one, not to be guessed. kInvalidArgument when there is a session of that id.
  Result<StreamSession*> Create(const SessionOptions& options, int n_waiting = -1, std::string id = "");
  // nullptr when there is none. It counts as a use of the session.
  StreamSession* Find(const std::string& id);
  // One that nothing works on and that nobody used for so long; nullptr when there is none.
  StreamSession* FindIdle(std::chrono::seconds idle) const;
  const std::map<std::string, std::unique_ptr<StreamSession>>& sessions() const { return sessions_; }
  void Erase(const std::string& id);
  bool HasAnswerPot() const { return !free_pots_.empty(); }
  // nullptr when all are lent. The pot holds the first n_seen() tokens of `prompt`, which is read on behind them; of an
  // empty prompt, nothing.
  Session* TakeAnswerPot(std::span<const PromptPart> prompt);
  void GiveAnswerPot(Session* session);
  PromptScorer& scorer() { return *scorer_; }
  Gauges ReadGauges() const;
  // A session into a file with all that is needed to make it again, and back as a new session. The caller finishes the
  // file: syncing it takes longest, and needs no engine.
  Result<std::unique_ptr<SnapshotWriter>> Save(const StreamSession& stream, const std::string& path) const;
  Result<StreamSession*> Restore(SnapshotReader& snapshot, const std::string& id = "");

 private:
  Host(LoadedModel& model, HostOptions options, int64_t budget_bytes)
      : model_(model), options_(std::move(options)), ledger_(budget_bytes) {}

  LoadedModel& model_;
  HostOptions options_;
  std::optional<ChatTemplate> chat_;
  SessionPlan plan_;
  std::string fingerprint_;
  Metrics metrics_;
  Ledger ledger_;
  std::unique_ptr<SharedEyes> eyes_;
  std::unique_ptr<PromptScorer> scorer_;
  std::unique_ptr<StepBatch> batch_;
  std::vector<Reservation> pot_reservations_;
  std::vector<std::unique_ptr<Session>> pots_;
  std::vector<Session*> free_pots_;    // those that nobody can go on from, then the longest unused first
  mutable std::mutex sessions_mutex_;  // the engine's thread changes sessions_ under it, and reads them without
  std::map<std::string, std::unique_ptr<StreamSession>> sessions_;
  std::atomic<bool> hurry_{false};
  std::unique_ptr<Scheduler> scheduler_;  // last: its thread uses the rest
};

// What a session is and holds, as answers report it. [engine]
Json SessionJson(const StreamSession& stream);

}  // namespace weir
