#include "serve/host.h"

#include <sys/random.h>

#include <ctime>

#include "engine/probe.h"
#include "kv/held.h"
#include "serve/answer_job.h"
#include "serve/held_map.h"
#include "serve/session_file.h"
#include "serve/session_job.h"

namespace weir {
namespace {

constexpr int kDefaultSessions = 8;

// Not to be guessed: who knows a session's id may talk to it.
Result<std::string> NewId() {
  uint8_t bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return IoError("the system gives no random numbers");
  std::string id = "s-";
  for (const uint8_t byte : bytes) id += StrFormat("%02x", byte);
  return id;
}

}  // namespace

Result<std::unique_ptr<Host>> Host::Make(LoadedModel& model, HostOptions options) {
  auto chat = ChatTemplate::ForFile(model.file(), model.tokenizer(), options.chat_template);
  if (!chat.ok() && !options.chat_template.empty()) return chat.status();
  WEIR_RETURN_IF_ERROR(
      PrepareProbe(model.tokenizer(), chat.ok() ? &*chat : nullptr, std::string_view(), &options.session));
  WEIR_ASSIGN_OR_RETURN(SessionPlan plan, PlanSession(model.model(), model.backend(), options.session));
  const StepBatch::Shape batch = StepBatch::ShapeFor(plan, options.max_together);
  const int64_t shared_bytes =
      PromptScorer::Bytes(model.model(), model.backend()) + StepBatch::Bytes(model.model(), model.backend(), batch);
  int64_t budget = options.budget_bytes;
  if (budget <= 0) budget = shared_bytes + (options.answer_pots + kDefaultSessions) * plan.total_bytes;
  std::unique_ptr<Host> out(new Host(model, std::move(options), budget));
  if (chat.ok()) out->chat_ = *std::move(chat);
  out->plan_ = std::move(plan);
  out->fingerprint_ = ModelFingerprint(model.file());
  const int64_t pots_bytes = shared_bytes + out->options_.answer_pots * out->plan_.total_bytes;
  if (pots_bytes > budget) {
    return OverBudget(
        "%d answer pots of %d tokens need %lld bytes, the budget is %lld; ask for a smaller --pot or fewer "
        "--answer-pots",
        out->options_.answer_pots, out->plan_.pot.n_slots, static_cast<long long>(pots_bytes),
        static_cast<long long>(budget));
  }
  for (int i = 0; i < out->options_.answer_pots; ++i) {
    WEIR_ASSIGN_OR_RETURN(Reservation bytes, out->ledger_.Reserve(MemTag::kOther, out->plan_.total_bytes));
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Session> pot,
                          Session::Make(model.model(), model.backend(), out->options_.session));
    out->free_pots_.push_back(pot.get());
    out->pots_.push_back(std::move(pot));
    out->pot_reservations_.push_back(std::move(bytes));
  }
  WEIR_ASSIGN_OR_RETURN(out->scorer_, PromptScorer::Make(model.model(), model.backend(), out->ledger_));
  WEIR_ASSIGN_OR_RETURN(out->batch_, StepBatch::Make(model.model(), model.backend(), batch, out->ledger_));
  Scheduler::JointStep joint;
  if (out->options_.max_together > 1) {
    joint = [shared = out->batch_.get()](std::span<Job* const> jobs, std::span<Job::Step> steps) {
      AnswerJob::AdvanceTogether(*shared, jobs, steps);
    };
  }
  out->scheduler_ = std::make_unique<Scheduler>(out->options_.max_waiting, std::move(joint));
  return out;
}

Host::~Host() = default;

Result<SessionOptions> Host::OptionsFor(const std::string& policy, int64_t pot) const {
  SessionOptions out = options_.session;
  if (pot > 0) out.pot_slots = static_cast<int32_t>(pot);
  if (policy.empty()) return out;
  if (policy.find("profile") != std::string::npos) {
    return InvalidArgument("'policy' may not name a profile: a request opens no files");
  }
  WEIR_ASSIGN_OR_RETURN(out.policy, ParsePolicySpec(policy));
  out.probe.clear();
  out.max_probe = 0;
  WEIR_RETURN_IF_ERROR(PrepareProbe(tokenizer(), chat(), std::string_view(), &out));
  return out;
}

Result<StreamSession*> Host::Create(const SessionOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const SessionPlan plan, PlanSession(model_.model(), model_.backend(), options));
  auto bytes = ledger_.Reserve(MemTag::kOther, plan.total_bytes);
  if (!bytes.ok()) {
    return OverBudget(
        "this session needs %lld bytes; %lld of the budget of %lld are free: delete a session, ask for a smaller "
        "pot, or start the server with a larger --budget",
        static_cast<long long>(plan.total_bytes), static_cast<long long>(ledger_.budget_bytes() - ledger_.used_bytes()),
        static_cast<long long>(ledger_.budget_bytes()));
  }
  WEIR_ASSIGN_OR_RETURN(const std::string id, NewId());
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Make(model_.model(), model_.backend(), options));
  std::unique_ptr<StreamSession> stream(new StreamSession{id, std::move(session), Conversation(tokenizer(), chat()),
                                                          options, *std::move(bytes),
                                                          static_cast<int64_t>(std::time(nullptr))});
  return sessions_.emplace(id, std::move(stream)).first->second.get();
}

StreamSession* Host::Find(const std::string& id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() || it->second->closing ? nullptr : it->second.get();
}

Session* Host::TakeAnswerPot() {
  if (free_pots_.empty()) return nullptr;
  Session* session = free_pots_.back();
  free_pots_.pop_back();
  return session;
}

void Host::GiveAnswerPot(Session* session) { free_pots_.push_back(session); }

Gauges Host::ReadGauges() const {
  Gauges out;
  out.budget_bytes = ledger_.budget_bytes();
  out.used_bytes = ledger_.used_bytes();
  out.peak_bytes = ledger_.peak_bytes();
  out.sessions = std::ssize(sessions_);
  out.answer_pots = std::ssize(pots_);
  out.answer_pots_busy = std::ssize(pots_) - std::ssize(free_pots_);
  for (const auto& pot : pots_) out.kv_bytes += pot->ledger().used_bytes(MemTag::kKv);
  for (const auto& [id, stream] : sessions_) {
    out.kv_bytes += stream->session->ledger().used_bytes(MemTag::kKv);
    out.tokens_resident += stream->session->pot().n_used();
  }
  out.jobs_running = scheduler_->n_running();
  out.jobs_waiting = scheduler_->n_waiting();
  out.joint_forwards = batch_->n_forwards();
  out.joint_tokens = batch_->n_shared();
  return out;
}

Status Host::Save(const StreamSession& stream, std::string* text, std::vector<uint8_t>* state) const {
  SessionNote note = SessionNote::Of(*stream.session, stream.options.on_overflow, options_.model_name, fingerprint_);
  note.conversation = stream.conversation.Save();
  *text = note.ToText();
  return stream.session->Save(state);
}

Result<StreamSession*> Host::Restore(const std::string& text, std::span<const uint8_t> state) {
  WEIR_ASSIGN_OR_RETURN(const SessionNote note, SessionNote::Parse(text));
  if (note.fingerprint != fingerprint_) {
    return InvalidArgument("the snapshot is of the model '%s', not of the one that runs here", note.model.c_str());
  }
  if (note.conversation.is_null()) return InvalidArgument("the snapshot is of a text without rounds");
  WEIR_ASSIGN_OR_RETURN(SessionOptions options, OptionsFor(note.policy, note.pot_slots));
  options.chunk_rows = note.chunk_rows;
  options.on_overflow = note.on_overflow;
  WEIR_ASSIGN_OR_RETURN(Conversation talk, Conversation::Restore(tokenizer(), chat(), note.conversation));
  WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, Create(options));
  Status status = note.CheckFits(*stream->session, fingerprint_);
  if (status.ok()) status = stream->session->Restore(state);
  if (!status.ok()) {
    Erase(stream->id);
    return status;
  }
  stream->conversation = std::move(talk);
  return stream;
}

Json SessionJson(const StreamSession& stream) {
  const Session& session = *stream.session;
  const SessionCounters counters = session.counters();
  const Held held = SummarizeHeld(session.pot(), counters.seen);
  return {{"id", stream.id},
          {"object", "session"},
          {"created", stream.created_s},
          {"policy", stream.options.policy.text},
          {"pot", session.plan().pot.n_slots},
          {"bytes", session.plan().total_bytes},
          {"unbounded_bytes", UnboundedBytes(session)},
          {"seen", counters.seen},
          {"kept", counters.kept},
          {"dropped", counters.dropped},
          {"pinned", held.n_pinned},
          {"oldest_unpinned", held.oldest_unpinned},
          {"unbroken_from", held.unbroken_from},
          {"selections", counters.selections}};
}

}  // namespace weir
