#include "serve/host.h"

#include <sys/random.h>

#include <algorithm>
#include <ctime>

#include "chat/probe.h"
#include "chat/prompt_reuse.h"
#include "chat/session_file.h"
#include "kv/held.h"
#include "serve/answer_job.h"
#include "serve/held_map.h"
#include "serve/session_job.h"

namespace weir {
namespace {

constexpr int kDefaultSessions = 8;
constexpr size_t kMaxPolicyBytes = 1 << 12;
constexpr int64_t kMaxCount = int64_t{1} << 50;  // that a snapshot may name: it goes on being counted

// Not to be guessed: who knows a session's id may talk to it.
Result<std::string> NewId(const std::string& node) {
  uint8_t bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return IoError("the system gives no random numbers");
  std::string id = node.empty() ? "s-" : "s-" + node + "-";
  for (const uint8_t byte : bytes) id += StrFormat("%02x", byte);
  return id;
}

// Errors repeat policies, and a snapshot names its session's with every option written out. The limit is the same
// wherever a policy comes from: what a server makes, any server can take over.
Status CheckLength(const std::string& policy) {
  if (policy.size() <= kMaxPolicyBytes) return Status();
  return InvalidArgument("a policy with all its options may have at most %zu bytes, this one has %zu", kMaxPolicyBytes,
                         policy.size());
}

std::chrono::seconds IdleFor(const StreamSession& stream) {
  if (stream.busy) return std::chrono::seconds(0);
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - stream.used_at);
}

}  // namespace

Result<std::unique_ptr<Host>> Host::Make(LoadedModel& model, HostOptions options) {
  auto chat = ChatTemplate::ForFile(model.file(), model.tokenizer(), options.chat_template);
  if (!chat.ok() && !options.chat_template.empty()) return chat.status();
  WEIR_RETURN_IF_ERROR(CheckLength(options.session.policy.text));
  WEIR_RETURN_IF_ERROR(PrepareProbe(model.tokenizer(), chat.ok() ? &*chat : nullptr, std::nullopt, &options.session));
  WEIR_ASSIGN_OR_RETURN(SessionPlan plan, PlanSession(model.model(), model.backend(), options.session));
  const StepBatch::Shape batch = StepBatch::ShapeFor(plan, options.max_together);
  Encoder* const encoder = options.encoder == nullptr ? nullptr : &options.encoder->encoder();
  int64_t shared_bytes =
      PromptScorer::Bytes(model.model(), model.backend()) + StepBatch::Bytes(model.model(), model.backend(), batch);
  if (encoder != nullptr) {
    WEIR_ASSIGN_OR_RETURN(const int64_t eyes_bytes, SharedEyes::Bytes(*encoder, options.eyes));
    shared_bytes += eyes_bytes;
  }
  int64_t budget = options.budget_bytes;
  if (budget <= 0) {
    const int64_t queue =
        encoder == nullptr ? 0 : FrameQueue::Bytes(encoder->config(), std::max(1, options.frames_waiting));
    budget = shared_bytes + options.answer_pots * plan.total_bytes + kDefaultSessions * (plan.total_bytes + queue);
  }
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
  if (encoder != nullptr) {
    WEIR_ASSIGN_OR_RETURN(out->eyes_, SharedEyes::Make(*encoder, out->options_.eyes, out->ledger_));
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
  WEIR_RETURN_IF_ERROR(CheckLength(policy));
  WEIR_ASSIGN_OR_RETURN(out.policy, ParsePolicySpec(policy, Profiles::kRefused));
  WEIR_RETURN_IF_ERROR(CheckLength(out.policy.text));
  out.probe.clear();
  out.max_probe = 0;
  WEIR_RETURN_IF_ERROR(PrepareProbe(tokenizer(), chat(), std::nullopt, &out));
  return out;
}

int64_t Host::QueueBytes(int n_waiting) const {
  return eyes_ == nullptr || n_waiting == 0 ? 0 : FrameQueue::Bytes(eyes_->config(), n_waiting);
}

Result<StreamSession*> Host::Create(const SessionOptions& options, int n_waiting, std::string id) {
  if (n_waiting < 0) n_waiting = options_.frames_waiting;
  WEIR_ASSIGN_OR_RETURN(const SessionPlan plan, PlanSession(model_.model(), model_.backend(), options));
  const int64_t needed = plan.total_bytes + QueueBytes(n_waiting), free = ledger_.budget_bytes() - ledger_.used_bytes();
  auto bytes = ledger_.Reserve(MemTag::kOther, plan.total_bytes);
  if (!bytes.ok() || needed > free) {
    return OverBudget(
        "this session needs %lld bytes; %lld of the budget of %lld are free: delete a session, ask for a smaller "
        "pot, or start the server with a larger --budget",
        static_cast<long long>(needed), static_cast<long long>(free), static_cast<long long>(ledger_.budget_bytes()));
  }
  std::shared_ptr<FrameQueue> frames;
  if (QueueBytes(n_waiting) > 0) {
    WEIR_ASSIGN_OR_RETURN(frames, FrameQueue::Make(*eyes_, n_waiting, ledger_));
  }
  if (id.empty()) {
    WEIR_ASSIGN_OR_RETURN(id, NewId(options_.node));
  }
  if (sessions_.count(id) != 0) return InvalidArgument("there is a session '%s' already", id.c_str());
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Make(model_.model(), model_.backend(), options));
  const bool prunes = eyes_ != nullptr && options_.eyes.prune.info != nullptr;
  std::unique_ptr<StreamSession> stream(new StreamSession{id, std::move(session), Conversation(tokenizer(), chat()),
                                                          options, *std::move(bytes),
                                                          static_cast<int64_t>(std::time(nullptr)), std::move(frames),
                                                          0, prunes ? std::optional<int64_t>(0) : std::nullopt});
  const std::lock_guard<std::mutex> lock(sessions_mutex_);
  return sessions_.emplace(id, std::move(stream)).first->second.get();
}

void Host::Erase(const std::string& id) {
  decltype(sessions_)::node_type gone;  // outlives the lock: its pot is freed without it
  const std::lock_guard<std::mutex> lock(sessions_mutex_);
  gone = sessions_.extract(id);
}

StreamSession* Host::Find(const std::string& id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end() || it->second->closing) return nullptr;
  it->second->used_at = std::chrono::steady_clock::now();
  return it->second.get();
}

StreamSession* Host::FindIdle(std::chrono::seconds idle) const {
  for (const auto& [id, stream] : sessions_) {
    if (!stream->busy && !stream->closing && IdleFor(*stream) >= idle) return stream.get();
  }
  return nullptr;
}

Session* Host::TakeAnswerPot(std::span<const PromptPart> prompt) {
  if (free_pots_.empty()) return nullptr;
  const PotChoice choice = ChoosePot(free_pots_, prompt);
  Session* session = free_pots_[choice.index];
  free_pots_.erase(free_pots_.begin() + static_cast<ptrdiff_t>(choice.index));
  session->Rewind(choice.n_tokens);
  return session;
}

void Host::GiveAnswerPot(Session* session) {
  // Where there is nothing to go on from, nobody has a place to lose.
  free_pots_.insert(session->n_rewindable() == 0 ? free_pots_.begin() : free_pots_.end(), session);
}

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
    const SessionCounters counters = stream->session->counters();
    for (size_t m = 0; m < out.tokens_resident.size(); ++m) out.tokens_resident[m] += counters.by[m].kept;
  }
  if (eyes_ != nullptr) {
    const EyesCounts& counts = eyes_->counts();
    out.pictures_read = counts.pictures_read;
    out.frames_read = counts.frames_read;
    out.frames_arrived = counts.frames_arrived;
    out.frames_dropped = counts.frames_dropped;
    out.rows_pruned = eyes_->n_pruned();
  }
  out.jobs_running = scheduler_->n_running();
  out.jobs_waiting = scheduler_->n_waiting();
  out.joint_forwards = batch_->n_forwards();
  out.joint_tokens = batch_->n_shared();
  return out;
}

namespace {

Json FramesJson(const FrameCounters& frames) {
  return {{"arrived", frames.arrived}, {"read", frames.read}, {"dropped", frames.dropped}, {"waiting", frames.waiting}};
}

// What a snapshot says of a session's pictures, and back; a file without it is of a session that saw none.
Json SaveWatched(const StreamSession& stream) {
  Json out = {{"t_ms", stream.t_ms}};
  if (stream.rows_pruned) out["rows_pruned"] = *stream.rows_pruned;
  if (stream.frames == nullptr) return out;
  const FrameCounters frames = stream.frames->counters();
  out["last_ms"] = frames.t_ms;
  out["frames"] = FramesJson(frames);
  return out;
}

Status RestoreWatched(const Json& saved, int64_t* t_ms, std::optional<int64_t>* rows_pruned, FrameCounters* frames) {
  if (saved.is_null()) return Status();
  Fields fields(saved, "watched.");
  fields.Get("t_ms", t_ms, 0, kMaxMoment);
  fields.Get("last_ms", &frames->t_ms, -1, kMaxMoment);
  if (fields.Has("rows_pruned")) fields.Get("rows_pruned", &rows_pruned->emplace(), 0, kMaxCount);
  const Json* counters = fields.Get("frames");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (counters == nullptr) return Status();
  Fields of_frames(*counters, "watched.frames.");
  of_frames.Get("arrived", &frames->arrived, 0, kMaxCount);
  of_frames.Get("read", &frames->read, 0, kMaxCount);
  of_frames.Get("dropped", &frames->dropped, 0, kMaxCount);
  of_frames.Get("waiting", &frames->waiting, 0, kMaxCount);
  return of_frames.Done();
}

}  // namespace

Result<std::unique_ptr<SnapshotWriter>> Host::Save(const StreamSession& stream, const std::string& path) const {
  SessionNote note = SessionNote::Of(*stream.session, stream.options.on_overflow, options_.model_name, fingerprint_);
  note.conversation = stream.conversation.Save();
  note.watched = SaveWatched(stream);
  WEIR_ASSIGN_OR_RETURN(auto file, SnapshotWriter::Begin(path, note.ToText(), stream.session->state_bytes()));
  WEIR_RETURN_IF_ERROR(stream.session->Save(*file));
  return file;
}

Result<StreamSession*> Host::Restore(SnapshotReader& snapshot, const std::string& id) {
  WEIR_ASSIGN_OR_RETURN(const SessionNote note, SessionNote::Parse(snapshot.text()));
  if (note.fingerprint != fingerprint_) {
    return InvalidArgument("the snapshot is of the model '%s', not of the one that runs here", note.model.c_str());
  }
  if (note.conversation.is_null()) return InvalidArgument("the snapshot is of a text without rounds");
  auto usable = OptionsFor(note.policy, note.pot_slots);
  // A policy that is not there is no missing file.
  if (!usable.ok()) return InvalidArgument("the snapshot is not usable: %s", usable.status().message().c_str());
  SessionOptions& options = *usable;
  options.chunk_rows = note.chunk_rows;
  options.on_overflow = note.on_overflow;
  WEIR_ASSIGN_OR_RETURN(Conversation talk, Conversation::Restore(tokenizer(), chat(), note.conversation));
  FrameCounters frames;
  int64_t t_ms = 0;
  std::optional<int64_t> rows_pruned;
  WEIR_RETURN_IF_ERROR(RestoreWatched(note.watched, &t_ms, &rows_pruned, &frames));
  WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, Create(options, -1, id));
  stream->t_ms = t_ms;
  if (rows_pruned) stream->rows_pruned = rows_pruned;
  if (stream->frames != nullptr) stream->frames->GoOnFrom(frames);
  Status status = note.CheckFits(*stream->session, fingerprint_);
  if (status.ok()) status = stream->session->Restore(snapshot);
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
  const int64_t queue_bytes = stream.frames == nullptr ? 0 : stream.frames->bytes();
  Json out = {{"id", stream.id},
              {"object", "session"},
              {"created", stream.created_s},
              {"idle_s", IdleFor(stream).count()},
              {"policy", stream.options.policy.text},
              {"pot", session.plan().pot.n_slots},
              {"bytes", session.plan().total_bytes + queue_bytes},
              {"unbounded_bytes", UnboundedBytes(session)},
              {"seen", counters.seen},
              {"kept", counters.kept},
              {"dropped", counters.dropped},
              {"pinned", held.n_pinned},
              {"oldest_unpinned", held.oldest_unpinned},
              {"unbroken_from", held.unbroken_from},
              {"selections", counters.selections},
              {"modalities", ModalitiesJson(counters, HeldSpans(session.pot()))},
              {"t_ms", stream.t_ms}};
  if (stream.rows_pruned) out["rows_pruned"] = *stream.rows_pruned;
  if (stream.frames != nullptr) out["frames"] = FramesJson(stream.frames->counters());
  return out;
}

}  // namespace weir
