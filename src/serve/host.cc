// SPDX-License-Identifier: Apache-2.0
#include "serve/host.h"

#include <algorithm>
#include <utility>

#include "chat/probe.h"
#include "chat/session_file.h"
#include "serve/form_store.h"
#include "serve/session_id.h"
#include "serve/thread_book.h"

namespace weir {
namespace {

constexpr int kDefaultSessions = 8;
constexpr int32_t kDefaultRuleTokens = 192;  // of each, as the page makes them

// Bytes of everything that sessions share.
Result<int64_t> SharedBytes(const LoadedModel& model, const HostOptions& options, const StepBatch::Shape& batch) {
  WEIR_RETURN_IF_ERROR(CheckFormBytes(options.form_bytes));
  const int64_t bytes =
      PromptScorer::Bytes(model.model(), model.backend()) + StepBatch::Bytes(model.model(), model.backend(), batch) +
      FormStore::MemoryBytes(model.tokenizer(), options.form_bytes) + WebhookSender::MemoryBytes(options.webhooks) +
      MqttPublisher::MemoryBytes(options.mqtt) + Telemetry::MemoryBytes(options.telemetry) + options.store_bytes;
  WEIR_ASSIGN_OR_RETURN(const int64_t recall_bytes,
                        RecallStore::MemoryBytes(model, options.recall, options.recall_disk_total));
  if (options.encoder == nullptr) return bytes + recall_bytes;
  WEIR_ASSIGN_OR_RETURN(const int64_t vision_bytes,
                        SharedVision::Bytes(options.encoder->encoder(), options.prune, options.decode));
  return bytes + recall_bytes + vision_bytes;
}

int64_t DefaultBudget(const HostOptions& options, int64_t shared_bytes, int64_t pot_bytes, int64_t session_bytes) {
  const int64_t queue = options.encoder == nullptr ? 0
                                                   : FrameQueue::Bytes(options.encoder->encoder().config(),
                                                                       std::max(1, options.frames_waiting));
  return shared_bytes + options.answer_pots * pot_bytes + kDefaultSessions * (session_bytes + queue);
}

// Bytes of a session that is made with rules; of one without where the model has no room for them.
int64_t SessionBytes(const LoadedModel& model, const HostOptions& options, SessionOptions session) {
  const EncoderConfig* const encoder = options.encoder == nullptr ? nullptr : &options.encoder->encoder().config();
  session.aside_slots = kDefaultRuleTokens;
  session.beside.push_back(SessionRules::Room(kDefaultRuleTokens));
  const auto plan = PlanSession(model.model(), model.backend(), session);
  return plan.ok() ? plan->total_bytes + SessionRules::BytesBeside(session, encoder) : 0;
}

// Requests send whole conversations: a pot goes back to where the last one and the next part, or to the end of
// the pinned words.
SessionOptions ForAnswers(SessionOptions options) {
  options.state_marks = 3;
  return options;
}

}  // namespace

Result<std::unique_ptr<Host>> Host::Make(LoadedModel& model, HostOptions options, JointStep joint_step) {
  auto chat = ChatTemplate::ForFile(model.file(), model.tokenizer(), options.chat_template, options.chat_arguments);
  if (!chat.ok() && !(options.chat_template.empty() && options.chat_arguments.empty())) return chat.status();
  WEIR_RETURN_IF_ERROR(CheckPolicyLength(options.session.policy.text));
  WEIR_RETURN_IF_ERROR(PrepareProbe(model.tokenizer(), chat.ok() ? &*chat : nullptr, std::nullopt, &options.session));
  options.session.pictures = options.encoder != nullptr;
  if (options.encoder != nullptr) {
    options.session.beside = FrameStore::Plan(options.encoder->encoder());
    options.recall.max_rows = options.encoder->encoder().config().max_rows();
  }
  WEIR_ASSIGN_OR_RETURN(SessionPlan plan, PlanSession(model.model(), model.backend(), ForAnswers(options.session)));
  SessionOptions with_recall = options.session;
  WEIR_RETURN_IF_ERROR(AddRecall(options.recall, model, &with_recall));
  WEIR_ASSIGN_OR_RETURN(SessionPlan session_plan, PlanSession(model.model(), model.backend(), with_recall));
  const StepBatch::Shape batch = StepBatch::ShapeFor(session_plan, options.max_together);
  WEIR_ASSIGN_OR_RETURN(const int64_t shared_bytes, SharedBytes(model, options, batch));
  const int64_t budget =
      options.budget_bytes > 0
          ? options.budget_bytes
          : DefaultBudget(options, shared_bytes, plan.total_bytes,
                          std::max(session_plan.total_bytes, SessionBytes(model, options, with_recall)));
  if (shared_bytes + options.answer_pots * plan.total_bytes > budget) {
    return OverBudget(
        "{} answer pots of {} tokens need {} bytes, but the budget is {}; use a smaller --pot or --form-memory, or "
        "fewer "
        "--answer-pots",
        options.answer_pots, plan.pot_slots, shared_bytes + options.answer_pots * plan.total_bytes, budget);
  }
  std::unique_ptr<Host> out(new Host(model, std::move(options), budget));
  if (chat.ok()) out->chat_ = *std::move(chat);
  const bool own_program = IsChatProgram(out->options_.chat_template);
  const auto jinja = model.file().StringOr("tokenizer.chat_template", "");
  out->answer_form_.emplace(own_program  ? out->options_.chat_template
                            : jinja.ok() ? *jinja
                                         : "",
                            out->chat(), model.tokenizer());
  out->plan_ = std::move(plan);
  out->session_plan_ = std::move(session_plan);
  out->fingerprint_ = ModelFingerprint(model.file());
  WEIR_RETURN_IF_ERROR(out->MakeRooms(batch, joint_step));
  return out;
}

Status Host::MakeRooms(const StepBatch::Shape& batch, JointStep joint_step) {
  WEIR_ASSIGN_OR_RETURN(
      form_bytes_, ledger_.Reserve(MemTag::kOther, FormStore::MemoryBytes(model_.tokenizer(), options_.form_bytes)));
  WEIR_ASSIGN_OR_RETURN(store_bytes_, ledger_.Reserve(MemTag::kOther, options_.store_bytes));
  WEIR_ASSIGN_OR_RETURN(
      recall_, RecallStore::Make(model_, options_.recall, options_.recall_disk_total, options_.snapshots, ledger_));
  Encoder* const encoder = options_.encoder == nullptr ? nullptr : &options_.encoder->encoder();
  WEIR_ASSIGN_OR_RETURN(pots_, AnswerPots::Make(model_, encoder, ForAnswers(options_.session), options_.answer_pots,
                                                plan_.total_bytes, ledger_));
  if (encoder != nullptr) {
    WEIR_ASSIGN_OR_RETURN(vision_, SharedVision::Make(*encoder, options_.prune, options_.decode, ledger_));
  }
  WEIR_ASSIGN_OR_RETURN(scorer_, PromptScorer::Make(model_.model(), model_.backend(), ledger_));
  WEIR_ASSIGN_OR_RETURN(batch_, StepBatch::Make(model_.model(), model_.backend(), batch, ledger_));
  if (!options_.webhooks.targets.empty()) {
    WEIR_ASSIGN_OR_RETURN(webhooks_, WebhookSender::Make(options_.webhooks, ledger_));
  }
  if (!options_.mqtt.address.empty()) {
    WEIR_ASSIGN_OR_RETURN(mqtt_, MqttPublisher::Make(options_.mqtt, ledger_));
  }
  WEIR_ASSIGN_OR_RETURN(telemetry_, Telemetry::Make(options_.telemetry, ledger_));
  admission_.emplace(model_, chat(), options_, vision_.get(), ledger_);
  Scheduler::JointStep joint;
  if (joint_step != nullptr && options_.max_together > 1) {
    joint = [joint_step, shared = batch_.get()](std::span<Job* const> jobs, std::span<Job::Step> steps) {
      joint_step(*shared, jobs, steps);
    };
  }
  start_bytes_ = ledger_.used_bytes();
  scheduler_ = std::make_unique<Scheduler>(options_.max_waiting, std::move(joint));
  return Status();
}

Host::Host(LoadedModel& model, HostOptions options, int64_t budget_bytes)
    : model_(model),
      options_(std::move(options)),
      forms_(std::make_unique<FormStore>(model.tokenizer(), options_.form_bytes)),
      threads_(std::make_unique<ThreadBook>()),
      ledger_(budget_bytes) {}

Host::~Host() { scheduler_.reset(); }

Result<StreamSession*> Host::Create(const SessionOptions& options, int n_waiting, std::string id) {
  if (n_waiting < 0) n_waiting = options_.frames_waiting;
  if (id.empty()) {
    WEIR_ASSIGN_OR_RETURN(id, NewSessionId(options_.node));
  }
  if (sessions_.Has(id)) return InvalidArgument("session '{}' already exists", id);
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<StreamSession> stream, admission_->Make(options, n_waiting, std::move(id)));
  if (stream->rules != nullptr) {
    stream->rules->webhooks = webhooks_.get();
    stream->rules->mqtt = mqtt_.get();
  }
  return sessions_.Add(std::move(stream));
}

Gauges Host::ReadGauges() const {
  Gauges out;
  out.budget_bytes = ledger_.budget_bytes();
  out.used_bytes = ledger_.used_bytes();
  out.peak_bytes = ledger_.peak_bytes();
  out.sessions = std::ssize(sessions_.all());
  out.answer_pots = pots_.n();
  out.answer_pots_busy = pots_.n() - pots_.n_free();
  out.kv_bytes = pots_.kv_bytes();
  for (const auto& [id, stream] : sessions_.all()) {
    out.kv_bytes += stream->session->ledger().used_bytes(MemTag::kKv);
    if (stream->recall != nullptr && stream->recall->stream != nullptr) {
      out.archive_bytes += stream->recall->stream->archive().disk_bytes();
    }
    const SessionCounters counters = stream->session->counters();
    for (size_t m = 0; m < out.tokens_resident.size(); ++m) out.tokens_resident[m] += counters.by[m].kept;
  }
  out.archive_reserved_bytes = recall_->disk_reserved();
  out.archive_total_bytes = recall_->disk_total();
  if (vision_ != nullptr) {
    const VisionCounts& counts = vision_->counts;
    out.pictures_read = counts.pictures_read;
    out.frames_read = counts.frames_read;
    out.frames_arrived = counts.frames_arrived;
    out.frames_dropped = counts.frames_dropped;
    out.rows_pruned = vision_->encoder->n_pruned();
  }
  if (webhooks_ != nullptr) {
    const WebhookSender::Counters webhooks = webhooks_->counters();
    out.webhooks_waiting = webhooks.waiting;
    out.webhooks_delivered = webhooks.delivered;
    out.webhooks_failed = webhooks.failed;
    out.webhooks_dropped = webhooks.dropped;
  }
  if (mqtt_ != nullptr) {
    const MqttPublisher::Counters mqtt = mqtt_->counters();
    out.mqtt_connected = mqtt.connected;
    out.mqtt_waiting = mqtt.waiting;
    out.mqtt_published = mqtt.published;
    out.mqtt_dropped = mqtt.dropped;
  }
  if (const OtlpExporter* const exporter = telemetry_->exporter(); exporter != nullptr) {
    const OtlpExporter::Counters counters = exporter->counters();
    out.spans_waiting = counters.waiting;
    out.spans_sent = counters.sent;
    out.spans_dropped = counters.dropped;
    out.otlp_failed = counters.failed;
  }
  out.room_bytes = ledger_.budget_bytes() - start_bytes_ + pots_.n() * plan_.total_bytes;
  out.room_used_bytes = ledger_.used_bytes() - start_bytes_ + out.answer_pots_busy * plan_.total_bytes;
  out.answer_pot_tokens = plan_.pot_slots;
  out.jobs_running = std::max(0, scheduler_->n_running() - 1);
  out.jobs_waiting = scheduler_->n_waiting();
  out.jobs_limit = options_.max_waiting;
  out.draining = draining();
  out.joint_forwards = batch_->n_forwards();
  out.joint_tokens = batch_->n_shared();
  return out;
}

}  // namespace weir
