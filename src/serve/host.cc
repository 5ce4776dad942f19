#include "serve/host.h"

#include <sys/random.h>

#include <cstring>
#include <ctime>

#include "engine/probe.h"
#include "kv/held.h"
#include "serve/session_job.h"

namespace weir {
namespace {

constexpr int kDefaultSessions = 8;

// Names, shapes and the first bytes of every tensor.
std::string Fingerprint(const GgufFile& file) {
  uint64_t sum = 0xCBF29CE484222325u;
  const auto mix = [&sum](const void* data, size_t n) {
    for (size_t i = 0; i < n; ++i) sum = (sum ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001B3u;
  };
  const int64_t n_bytes = file.file_bytes();
  mix(&n_bytes, sizeof(n_bytes));
  for (const GgufTensor& tensor : file.tensors()) {
    mix(tensor.name.data(), tensor.name.size());
    mix(tensor.shape.data(), tensor.shape.size() * sizeof(int64_t));
    mix(&tensor.type, sizeof(tensor.type));
    mix(tensor.data, static_cast<size_t>(std::min<int64_t>(tensor.bytes, 64)));
  }
  return StrFormat("%016llx", static_cast<unsigned long long>(sum));
}

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
  const int64_t scorer_bytes = PromptScorer::Bytes(model.model(), model.backend());
  int64_t budget = options.budget_bytes;
  if (budget <= 0) budget = scorer_bytes + (options.answer_pots + kDefaultSessions) * plan.total_bytes;
  std::unique_ptr<Host> out(new Host(model, std::move(options), budget));
  if (chat.ok()) out->chat_ = *std::move(chat);
  out->plan_ = std::move(plan);
  out->fingerprint_ = Fingerprint(model.file());
  const int64_t pots_bytes = scorer_bytes + out->options_.answer_pots * out->plan_.total_bytes;
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
  out->scheduler_ = std::make_unique<Scheduler>(out->options_.max_waiting);
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
  return out;
}

Status Host::Save(const StreamSession& stream, std::string* text, std::vector<uint8_t>* state) const {
  const SessionOptions& options = stream.options;
  const SessionPlan& plan = stream.session->plan();
  *text = JsonText({{"format", 1},
                    {"model", options_.model_name},
                    {"fingerprint", fingerprint_},
                    {"policy", options.policy.text},
                    {"pot", plan.pot.n_slots},
                    {"chunk", plan.chunk_rows},
                    {"k_type", InfoOf(plan.pot.k_type).name},
                    {"v_type", InfoOf(plan.pot.v_type).name},
                    {"on_overflow", options.on_overflow == OnOverflow::kError ? "error" : "evict"},
                    {"conversation", stream.conversation.Save()}});
  return stream.session->Save(state);
}

Result<StreamSession*> Host::Restore(const std::string& text, std::span<const uint8_t> state) {
  WEIR_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  Fields fields(json);
  int64_t format = 0, pot = 0, chunk = 0;
  std::string name, fingerprint, policy, k_type, v_type, on_overflow;
  fields.Get("format", &format, 1, 1);
  fields.Get("model", &name);
  fields.Get("fingerprint", &fingerprint);
  fields.Get("policy", &policy);
  fields.Get("pot", &pot, 1, 1 << 26);
  fields.Get("chunk", &chunk, 1, 1 << 26);
  fields.Get("k_type", &k_type);
  fields.Get("v_type", &v_type);
  fields.Get("on_overflow", &on_overflow);
  const Json* conversation = fields.Get("conversation");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (conversation == nullptr || policy.empty() || pot == 0) return InvalidArgument("the snapshot lacks fields");
  if (fingerprint != fingerprint_) {
    return InvalidArgument("the snapshot is of the model '%s', not of the one that runs here", name.c_str());
  }
  if (k_type != InfoOf(options_.session.k_type).name || v_type != InfoOf(options_.session.v_type).name) {
    return InvalidArgument("the snapshot holds keys as %s and values as %s; start the server with the same cache types",
                           k_type.c_str(), v_type.c_str());
  }
  WEIR_ASSIGN_OR_RETURN(SessionOptions options, OptionsFor(policy, pot));
  options.chunk_rows = static_cast<int32_t>(chunk);
  options.on_overflow = on_overflow == "error" ? OnOverflow::kError : OnOverflow::kEvict;
  WEIR_ASSIGN_OR_RETURN(Conversation talk, Conversation::Restore(tokenizer(), chat(), *conversation));
  WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, Create(options));
  if (const Status status = stream->session->Restore(state); !status.ok()) {
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
          {"seen", counters.seen},
          {"kept", counters.kept},
          {"dropped", counters.dropped},
          {"pinned", held.n_pinned},
          {"oldest_unpinned", held.oldest_unpinned},
          {"unbroken_from", held.unbroken_from},
          {"selections", counters.selections}};
}

}  // namespace weir
