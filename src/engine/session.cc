#include "engine/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kv/held.h"

namespace weir {

Result<std::unique_ptr<Session>> Session::Make(Model& model, Backend& backend, const SessionOptions& options) {
  if (!backend.can_run()) return InvalidArgument("this model was loaded for planning only; it cannot run");
  WEIR_ASSIGN_OR_RETURN(SessionPlan plan, PlanSession(model, backend, options));
  // Asked for the whole at once: buffers are taken one by one, and each alone may still fit.
  // Of a device only its own bytes would count, and it says itself when they are too many.
  if (const int64_t available = backend.AvailableBytes(); backend.on_host() && plan.total_bytes > available) {
    return OverBudget("this session needs %lld bytes, the system has %lld left; ask for a smaller --pot or --budget",
                      static_cast<long long>(plan.total_bytes), static_cast<long long>(available));
  }
  // What was planned is the contract: one byte more is refused, whatever the budget was.
  std::unique_ptr<Session> out(new Session(plan.total_bytes));
  out->model_ = &model;
  out->backend_ = &backend;
  out->options_ = options;
  WEIR_ASSIGN_OR_RETURN(out->policy_, options.policy.Make());
  out->needs_ = out->policy_->Needs();
  // A policy that does not ask has no room for a probe, and nothing to save or restore of it.
  if (plan.probe_slots > 0) out->probe_ = options.probe;
  WEIR_ASSIGN_OR_RETURN(out->pot_, Pot::Make(plan.pot, backend, out->ledger_));
  WEIR_ASSIGN_OR_RETURN(out->runner_, Runner::Make(model, backend, plan.runner, out->ledger_));
  const ModelConfig& config = model.config();
  const auto allocate = [&](MemTag tag, int64_t bytes, Access access = Access::kShared) {
    return backend.Allocate(out->ledger_, tag, bytes, access);
  };
  const int64_t logits_bytes = static_cast<int64_t>(config.n_vocab) * 4;
  WEIR_ASSIGN_OR_RETURN(out->logits_, allocate(MemTag::kLogits, logits_bytes, Access::kDevice));
  if (!backend.on_host()) {
    WEIR_ASSIGN_OR_RETURN(out->host_logits_, allocate(MemTag::kLogits, logits_bytes));
  }
  WEIR_ASSIGN_OR_RETURN(out->last_hidden_, allocate(MemTag::kLogits, static_cast<int64_t>(config.n_embd) * 4));
  if (plan.novelty_bytes > 0) {
    WEIR_ASSIGN_OR_RETURN(out->novelty_, allocate(MemTag::kMeta, plan.novelty_bytes));
    WEIR_ASSIGN_OR_RETURN(out->novelty_scratch_, allocate(MemTag::kMeta, plan.novelty_scratch_bytes));
  }
  if (plan.visual_bytes > 0) {
    WEIR_ASSIGN_OR_RETURN(out->visual_, allocate(MemTag::kMeta, plan.visual_bytes));
  }
  if (plan.watch_bytes > 0) {
    WEIR_ASSIGN_OR_RETURN(out->watched_, allocate(MemTag::kWorkspace, plan.watch_bytes));
    out->watch_ = {out->watched_.as<float>(), plan.pot.max_head_slots()};
  }
  WEIR_ASSIGN_OR_RETURN(out->bookkeeping_, out->ledger_.Reserve(MemTag::kMeta, plan.bookkeeping_bytes));
  const size_t max_rows = static_cast<size_t>(plan.runner.max_rows),
               n_groups = static_cast<size_t>(plan.pot.n_groups());
  out->chunk_.reserve(max_rows);
  out->targets_.reserve(max_rows);
  out->nll_.reserve(max_rows);
  out->views_.resize(n_groups);
  out->keeps_.resize(n_groups);
  out->reads_.resize(out->needs_.read_every > 1 ? n_groups : 0);
  for (KeepSet& keep : out->keeps_) keep.reserve(static_cast<size_t>(plan.pot.max_head_slots()));
  for (KeepSet& read : out->reads_) read.reserve(static_cast<size_t>(plan.pot.max_head_slots()));
  if (out->needs_.evidence.visual_latest) {
    WEIR_ASSIGN_OR_RETURN(out->latest_, allocate(MemTag::kWorkspace, plan.pot.max_head_slots() * 4));
  }
  out->plan_ = std::move(plan);
  return out;
}

int32_t Session::NextChunkRows(int64_t n_left) const {
  int32_t rows = plan_.chunk_rows;
  if (needs_.evicts && n_pinned_ > 0) rows = std::min(rows, n_slots() - n_pinned_ - (needs_.min_slots - 1));
  if (needs_.positions == Positions::kReset) rows = std::min(rows, n_free());
  return static_cast<int32_t>(std::min<int64_t>(std::max(rows, 0), n_left));
}

void Session::Likelihoods(std::span<const int32_t> tokens, const float* hidden, float* nll) {
  // Row r predicts token r + 1; the first token of the chunk is predicted by the last row of the previous one.
  const int64_t n = std::ssize(tokens);
  if (!has_last_) {
    nll[0] = next_nll_;
  } else if (logits_fresh_) {
    const float* logits = HostLogits();
    nll[0] = backend_->LogSumExp(logits, model_->config().n_vocab) - logits[tokens[0]];
  } else {
    runner_->HeadNll(last_hidden_.as<float>(), tokens.data(), 1, nll);
  }
  if (n > 1) {
    targets_.assign(tokens.begin() + 1, tokens.end());
    runner_->HeadNll(hidden, targets_.data(), n - 1, nll + 1);
  }
}

BatchItem Session::BeginChunk(const Rows& rows, const AppendOptions& options, int64_t n_after) {
  const int32_t n = static_cast<int32_t>(rows.n);
  const int64_t t_src_ms = std::max(options.t_src_ms, t_newest_ms_);
  chunk_.clear();
  for (int32_t i = 0; i < n; ++i) {
    SlotMeta meta;
    meta.seq = n_seen_ + i;
    meta.t_src_ms = t_src_ms;
    meta.token_id = rows.tokens == nullptr ? -options.columns : rows.tokens[i];
    meta.modality = rows.modality;
    if (rows.tokens == nullptr) meta.row = static_cast<uint16_t>(rows.first + i);
    meta.pinned = options.pinned;
    chunk_.push_back(meta);
  }
  const Evidence& evidence = needs_.evidence;
  evidence_ = {0, n, evidence.row_reduce, evidence.head_reduce, false};
  const bool reads_all = needs_.read_every <= 1 || !options.generated || n != 1 || rows.tokens == nullptr || ReadsAll();
  reads_fresh_ = false;  // until the row is read
  bool vote = evidence.rows == EvidenceRows::kAll;
  evidence_.accumulate = vote;
  if (evidence.visual_latest) {
    vote = reads_all && rows.tokens != nullptr;
    evidence_.latest = latest_.as<float>();
  }
  if (evidence.rows == EvidenceRows::kLast) {
    // Only rows that a selection will ask: the newest of a prompt, and those before the pot runs full.
    const bool near_end = !options.generated && n_after < evidence.n_last,
               selects_next = n_free() - n < (n_after == 0 ? 1 : plan_.chunk_rows);
    vote = near_end || selects_next;
    const int64_t n_vote = evidence.n_last - (near_end && !selects_next ? n_after : 0);
    evidence_.row_begin = n - std::min<int64_t>(n, n_vote);
    // A prompt that ends in a short chunk, or in the words of a template behind it: its rows are added to those that
    // have voted right before them.
    evidence_.accumulate = near_end && n_after + n < evidence.n_last && n_unscored_ == 0 && n_score_rows_ > 0 &&
                           int64_t{n_score_rows_} + n <= 2 * int64_t{evidence.n_last};
  }
  return {pot_.get(), chunk_,    vote ? &evidence_ : nullptr, rows.embeddings, reads_all ? nullptr : reads_.data(),
          nullptr,    pos_shift_};
}

void Session::EndChunk(const Rows& rows, const AppendOptions& options, const BatchItem& item, const float* hidden,
                       float* nll) {
  const int32_t n = static_cast<int32_t>(rows.n);
  NoteChunk(rows, options, item);
  if (item.evidence != nullptr) {
    const int32_t n_rows = static_cast<int32_t>(evidence_.row_end - evidence_.row_begin);
    n_score_rows_ = evidence_.accumulate
                        ? static_cast<int32_t>(std::min<int64_t>(INT32_MAX, int64_t{n_score_rows_} + n_rows))
                        : n_rows;
    n_unscored_ = 0;
  } else {
    n_unscored_ += n;
  }
  if (nll != nullptr || needs_.evidence.nll) {
    nll_.resize(static_cast<size_t>(n));
    if (rows.tokens != nullptr) {
      Likelihoods({rows.tokens, static_cast<size_t>(n)}, hidden, nll_.data());
    } else {
      std::fill(nll_.begin(), nll_.end(), 0.0f);
      if (!has_last_) nll_[0] = std::numeric_limits<float>::infinity();
    }
    if (needs_.evidence.nll) pot_->SetNll(nll_);
    if (nll != nullptr) {
      std::copy(nll_.begin(), nll_.end(), nll);
      if (!has_last_) nll[0] = 0;
    }
  }
  n_since_full_ = item.reads == nullptr ? 0 : n_since_full_ + 1;
  reads_fresh_ = item.reads != nullptr;
  n_slots_read_ = 0;
  for (int32_t group = 0; group < pot_->shape().n_groups(); ++group) {
    n_slots_read_ += item.reads == nullptr ? std::ssize(pot_->meta(group)) : std::ssize(item.reads[group]);
  }
  if (rows.tokens == nullptr && rows.first + n == rows.n_all) {
    // What follows a picture stands behind its last line and its last column (kv/axes.h).
    const int64_t columns = std::min<int64_t>(options.columns, rows.n_all);
    const int64_t lines = (rows.n_all + options.columns - 1) / options.columns;
    pos_shift_ += std::max(lines, columns) - rows.n_all;
  }
  const int64_t n_embd = model_->config().n_embd;
  backend_->Copy(last_hidden_.data(), hidden + (n - 1) * n_embd, n_embd * 4);
  has_last_ = true;
  logits_fresh_ = false;
  t_newest_ms_ = std::max(t_newest_ms_, options.t_src_ms);
  n_seen_ += n;
  n_seen_by_[static_cast<size_t>(rows.modality)] += n;
  if (options.pinned) n_pinned_ += n;
}

Status Session::CheckTokens(std::span<const int32_t> tokens) const {
  for (int32_t id : tokens) {
    if (id < 0 || id >= model_->config().n_vocab) {
      return InvalidArgument("token %d is outside the vocabulary of %d", id, model_->config().n_vocab);
    }
  }
  return Status();
}

Result<int32_t> Session::MakeRoomForChunk(int64_t n_left) {
  // Distillations come when the pot is full to the last slot, and keep what they keep whatever the chunks.
  if (needs_.positions == Positions::kReset) WEIR_RETURN_IF_ERROR(MakeRoom(1));
  const int32_t n = NextChunkRows(n_left);
  if (n == 0) {
    return OverBudget("%d of the pot's %d slots are pinned, which leaves no room for more tokens", n_pinned_,
                      n_slots());
  }
  if (needs_.positions == Positions::kAbs) {
    // Before anything is forgotten, and before other sessions of a batch depend on it.
    WEIR_RETURN_IF_ERROR(CheckLearnedPositions(model_->config().attention, needs_.positions, n_seen_ + n));
  }
  WEIR_RETURN_IF_ERROR(MakeRoom(n));
  return n;
}

Status Session::Append(std::span<const int32_t> tokens, const AppendOptions& options) {
  WEIR_RETURN_IF_ERROR(CheckTokens(tokens));  // before anything is forgotten to make room for them
  if (options.nll != nullptr && !options_.nll) return InvalidArgument("this session was made without likelihoods");
  return AppendRows({std::ssize(tokens), tokens.data()}, options);
}

Status Session::AppendEmbeddings(std::span<const float> rows, Modality modality, const AppendOptions& options) {
  const int64_t n_embd = model_->config().n_embd;
  if (std::ssize(rows) % n_embd != 0) {
    return InvalidArgument("%zu numbers are no whole rows of %lld", rows.size(), static_cast<long long>(n_embd));
  }
  if (std::ssize(rows) / n_embd > (1 << 16)) {
    return InvalidArgument("%lld rows of one picture or frame; 65,536 are possible",
                           static_cast<long long>(std::ssize(rows) / n_embd));
  }
  if (options.nll != nullptr) return InvalidArgument("nothing predicts an embedding: it has no likelihood");
  if (options.columns < 1 || options.columns > kMaxColumns) {
    return InvalidArgument("a picture of %d columns; 1 to 65,536 are possible", options.columns);
  }
  for (float value : rows) {
    if (!std::isfinite(value)) return InvalidArgument("an embedding with a number that is not finite");
  }
  return AppendRows({std::ssize(rows) / n_embd, nullptr, rows.data(), modality}, options);
}

Status Session::AppendRows(const Rows& rows, const AppendOptions& options) {
  const int64_t n_tokens = rows.n;
  for (int64_t done = 0; done < n_tokens;) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      return Cancelled("stopped after %lld of %lld tokens", static_cast<long long>(done),
                       static_cast<long long>(n_tokens));
    }
    WEIR_ASSIGN_OR_RETURN(const int32_t n, MakeRoomForChunk(n_tokens - done));
    const Rows chunk = {n,
                        rows.tokens == nullptr ? nullptr : rows.tokens + done,
                        rows.embeddings == nullptr ? nullptr : rows.embeddings + done * model_->config().n_embd,
                        rows.modality,
                        done,
                        n_tokens};
    const bool last = done + n == n_tokens;
    BatchItem item = BeginChunk(chunk, options, n_tokens - done - n);
    // Rows that others are asked by: ends of prompts, and tokens of answers that read all slots.
    const bool watch = watch_.out != nullptr && trace_ != nullptr && trace_->WantsAttention() &&
                       item.reads == nullptr && (options.generated || (last && options.end_of_prompt));
    if (watch) item.watch = &watch_;
    item.last_hidden_only = options.nll == nullptr && !needs_.evidence.nll;
    WEIR_ASSIGN_OR_RETURN(const float* hidden, runner_->Forward({&item, 1}, options.observer));
    EndChunk(chunk, options, item, hidden, options.nll == nullptr ? nullptr : options.nll + done);
    if (watch) WEIR_RETURN_IF_ERROR(TraceAttention());
    if (options.nll != nullptr) WEIR_RETURN_IF_ERROR(backend_->status());  // a failed device leaves them as they were
    done += n;
    if (options.progress) options.progress(done);
  }
  if (options.end_of_prompt && needs_.evicts && options_.on_overflow == OnOverflow::kEvict) {
    const int32_t target = policy_->TargetAfterPrompt(n_slots());
    const int32_t n_keep = std::max(target, n_pinned_ + needs_.min_slots - 1);
    if (target >= 0 && pot_->n_used() > n_keep) WEIR_RETURN_IF_ERROR(Shrink(n_keep, "end of prompt"));
    if (needs_.trims_prompt) WEIR_RETURN_IF_ERROR(TrimPrompt());
  }
  return Status();
}

Status Session::BeginRound(std::span<const int32_t> question, int64_t n_answer, int64_t n_read) {
  question_.clear();
  if (needs_.question_rows > 0 && needs_.evidence.rows == EvidenceRows::kProbe) {
    question_.assign(question.end() - std::min<int64_t>(std::ssize(question), needs_.question_rows), question.end());
  }
  if (n_seen_ <= n_read) return Status();  // there is nothing before the question
  if (needs_.evicts && options_.on_overflow == OnOverflow::kEvict) {
    // Forgetting for the sake of an answer that may turn out short would be a pity: an eighth of the pot at most.
    const int64_t wanted = std::ssize(question) - n_read + std::clamp<int64_t>(n_answer, 0, n_slots() / 8);
    const int64_t most = std::min(n_slots() / 2, n_slots() - n_pinned_ - (needs_.min_slots - 1));
    if (most > 0) WEIR_RETURN_IF_ERROR(MakeRoom(static_cast<int32_t>(std::min(wanted, most))));
  }
  if (needs_.nll_decay != 1) {
    pot_->ScaleNll(needs_.nll_decay);
    ForbidRewind();
  }
  return Status();
}

Status Session::SetProbe(std::span<const int32_t> tokens) {
  if (tokens.empty() || std::ssize(tokens) > plan_.probe_slots) {
    return InvalidArgument("a probe of %zu tokens, where %d slots are kept free for it", tokens.size(),
                           plan_.probe_slots);
  }
  for (int32_t id : tokens) {
    if (id < 0 || id >= model_->config().n_vocab) {
      return InvalidArgument("token %d of the probe is outside the vocabulary of %d", id, model_->config().n_vocab);
    }
  }
  probe_.assign(tokens.begin(), tokens.end());
  return Status();
}

Status Session::MakeLogits() {
  if (!has_last_) return InvalidArgument("no token was read yet, so there is nothing to continue");
  if (logits_fresh_) return Status();
  runner_->Logits(last_hidden_.as<float>(), 1, logits_.as<float>());
  logits_fresh_ = true;
  host_logits_fresh_ = false;
  return Status();
}

void Session::TakeLogits(const float* logits) {
  backend_->Copy(logits_.data(), logits, static_cast<int64_t>(model_->config().n_vocab) * 4);
  logits_fresh_ = true;
  host_logits_fresh_ = false;
}

float* Session::HostLogits() {
  if (backend_->on_host()) return logits_.as<float>();
  if (!host_logits_fresh_) {
    backend_->Copy(host_logits_.data(), logits_.data(), static_cast<int64_t>(model_->config().n_vocab) * 4);
    backend_->Synchronise();
    host_logits_fresh_ = true;
  }
  return host_logits_.as<float>();
}

Result<std::span<float>> Session::Logits() {
  WEIR_RETURN_IF_ERROR(MakeLogits());
  float* const logits = HostLogits();
  WEIR_RETURN_IF_ERROR(backend_->status());
  return std::span<float>(logits, static_cast<size_t>(model_->config().n_vocab));
}

Status Session::MostLikely(std::span<int32_t> ids, std::span<float> values) {
  const int64_t n = std::ssize(ids);
  if (n < 1 || n > std::min<int64_t>(kMaxTopLogits, model_->config().n_vocab) || std::ssize(values) != n) {
    return InvalidArgument("the %lld most likely of %d tokens", static_cast<long long>(n), model_->config().n_vocab);
  }
  WEIR_RETURN_IF_ERROR(MakeLogits());
  runner_->TopLogits(logits_.as<float>(), ids, values);
  return backend_->status();
}

void Session::Reset() {
  pot_->Clear();
  StartAnew();
}

void Session::StartAnew() {
  policy_ = std::move(options_.policy.Make()).value();  // succeeded once with the same options
  has_last_ = logits_fresh_ = false;
  n_seen_ = n_selections_ = n_slots_read_ = pos_shift_ = 0;
  t_newest_ms_ = kNoTime;
  n_since_full_ = 0;
  reads_fresh_ = false;
  n_seen_by_ = {};
  n_pinned_ = n_score_rows_ = n_unscored_ = 0;
  plain_ = true;
  n_rewindable_ = 0;
  next_nll_ = std::numeric_limits<float>::infinity();
  question_.clear();
  if (plan_.probe_slots > 0) probe_ = options_.probe;
}

SessionCounters Session::counters() const {
  SessionCounters c;
  c.seen = n_seen_;
  c.selections = n_selections_;
  const Held held = SummarizeHeld(*pot_, n_seen_);
  c.kept = held.n_kept;
  c.dropped = c.seen - c.kept;
  for (size_t m = 0; m < c.by.size(); ++m) {
    c.by[m] = {n_seen_by_[m], held.n_kept_by[m], n_seen_by_[m] - held.n_kept_by[m]};
  }
  return c;
}

}  // namespace weir
