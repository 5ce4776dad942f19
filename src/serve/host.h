// SPDX-License-Identifier: Apache-2.0
// The host: one model, a fixed budget of bytes, and the components that share them.
//
// A few answer pots are made at start-up (serve/answer_pots.h); the rest of the budget goes to stream sessions
// (serve/session_table.h), subject to admission control (serve/admission.h). The scheduler's jobs do the work; jobs
// depend on the host, not the host on jobs.
//
// Methods marked [engine] run on the scheduler's thread only; the rest is immutable or thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/ledger.h"
#include "chat/score.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "engine/step_batch.h"
#include "serve/admission.h"
#include "serve/answer_pots.h"
#include "serve/host_options.h"
#include "serve/metrics.h"
#include "serve/mqtt_publisher.h"
#include "serve/recall_store.h"
#include "serve/scheduler.h"
#include "serve/session_keeper.h"
#include "serve/session_table.h"
#include "serve/shared_vision.h"
#include "serve/telemetry.h"
#include "serve/webhook_sender.h"
#include "text/answer_reader.h"
#include "text/chat_template.h"

namespace weir {

class FormStore;
class ThreadBook;

class Host {
 public:
  // One step of several jobs at once; the batch reads their tokens in one forward pass (Scheduler::JointStep).
  using JointStep = void (*)(StepBatch& batch, std::span<Job* const> jobs, std::span<Job::Step> steps);

  // Without a `joint_step`, or with max_together 1, every job steps alone. kOverBudget if the answer pots do not fit,
  // kInvalidArgument for a policy of more than 4 KiB; errors of PlanSession and Session::Make. A missing chat template
  // is not an error (chat() is then nullptr); an unknown template name is.
  static Result<std::unique_ptr<Host>> Make(LoadedModel& model, HostOptions options, JointStep joint_step = nullptr);
  ~Host();

  LoadedModel& model() const { return model_; }
  const Tokenizer& tokenizer() const { return model_.tokenizer(); }
  const ChatTemplate* chat() const { return chat_ ? &*chat_ : nullptr; }
  // How the model's answers are taken apart.
  const AnswerForm& answer_form() const { return *answer_form_; }
  const HostOptions& options() const { return options_; }
  // The plan of an answer pot.
  const SessionPlan& plan() const { return plan_; }
  // The plan of a stream session with the default options, and the bytes of the budget that it takes.
  const SessionPlan& session_plan() const { return session_plan_; }
  int64_t session_bytes() const { return session_plan_.total_bytes + admission_->QueueBytes(options_.frames_waiting); }
  // Identifies the weights: snapshots of another model are refused.
  const std::string& fingerprint() const { return fingerprint_; }
  const Ledger& ledger() const { return ledger_; }
  const Admission& admission() const { return *admission_; }
  Scheduler& scheduler() { return *scheduler_; }
  Metrics& metrics() { return metrics_; }
  ThreadBook& threads() const { return *threads_; }
  // What answers may be held to. Any thread.
  FormStore& forms() const { return *forms_; }
  // nullptr where the server sends none.
  WebhookSender* webhooks() const { return webhooks_.get(); }
  // nullptr without a broker.
  MqttPublisher* mqtt() const { return mqtt_.get(); }
  Telemetry& telemetry() const { return *telemetry_; }
  // nullptr without an encoder.
  SharedVision* vision() const { return vision_.get(); }

  // Around requests on sessions: see SessionKeeper. Without a keeper all is settled. `keeper` must
  // outlive the requests.
  void SetKeeper(SessionKeeper* keeper) { keeper_ = keeper; }
  SessionTicket Ticket(const std::string& id) const {
    return keeper_ == nullptr || id.empty() ? SessionTicket() : keeper_->Ticket(id);
  }
  ApiError Settle(const std::string& id, SessionTicket ticket, bool reads = false) {
    return keeper_ == nullptr || id.empty() ? ApiError{0, "", ""} : keeper_->Settle(*this, id, ticket, reads);
  }
  Status Deleted(const std::string& id) { return keeper_ == nullptr ? Status() : keeper_->Deleted(id); }

  // Makes jobs on sessions and answer pots end at their next step. Any thread.
  void Hurry() { hurry_ = true; }
  bool hurry() const { return hurry_; }
  // From now on requests are refused: the server shuts down. Any thread.
  void StartDraining() { draining_ = true; }
  bool draining() const { return draining_ || hurry_; }
  // Whether the budget has room for another session of the default options, or is not meant for sessions at all. Any
  // thread.
  bool HasRoom() const {
    const int64_t rest = ledger_.budget_bytes() - ledger_.used_bytes();
    return rest >= session_bytes() || ledger_.budget_bytes() - start_bytes_ < session_bytes();
  }

  AnswerPots& pots() { return pots_; }              // [engine]
  PromptScorer& scorer() { return *scorer_; }       // [engine]
  RecallStore& recall() const { return *recall_; }  // thread rules: see RecallStore
  SessionTable& sessions() { return sessions_; }    // thread rules: see SessionTable
  // Admits a session and adds it to the table. `n_waiting`: frames of a live video that may wait, -1: the value in the
  // host's options, 0: no live video. An empty id: a new id. Errors of Admission::Make; kInvalidArgument if a session
  // of that id exists. Without recall: options that were planned with it need an archive (RecallStore) next. [engine]
  Result<StreamSession*> Create(const SessionOptions& options, int n_waiting = -1, std::string id = "");
  // [engine], from a job that is not to be counted.
  Gauges ReadGauges() const;

 private:
  Host(LoadedModel& model, HostOptions options, int64_t budget_bytes);
  Status MakeRooms(const StepBatch::Shape& batch, JointStep joint_step);

  LoadedModel& model_;
  HostOptions options_;
  std::optional<ChatTemplate> chat_;
  std::unique_ptr<FormStore> forms_;
  SessionPlan plan_, session_plan_;
  std::string fingerprint_;
  Metrics metrics_;
  std::unique_ptr<ThreadBook> threads_;
  Ledger ledger_;
  Reservation form_bytes_, store_bytes_;
  std::unique_ptr<SharedVision> vision_;
  std::unique_ptr<PromptScorer> scorer_;
  std::unique_ptr<StepBatch> batch_;
  std::optional<Admission> admission_;
  std::unique_ptr<WebhookSender> webhooks_;
  std::unique_ptr<MqttPublisher> mqtt_;
  std::unique_ptr<Telemetry> telemetry_;
  std::unique_ptr<RecallStore> recall_;
  AnswerPots pots_;
  SessionTable sessions_;
  SessionKeeper* keeper_ = nullptr;
  std::atomic<bool> hurry_{false}, draining_{false};
  int64_t start_bytes_ = 0;               // what answer pots and what all share took of the budget at the start
  std::unique_ptr<Scheduler> scheduler_;  // its thread uses the rest, and ends first
  std::optional<AnswerForm> answer_form_;
};

}  // namespace weir
