// SPDX-License-Identifier: Apache-2.0
#include "engine/session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/reads_pictures.h"

namespace weir {
namespace {

// The fields shared by all chunks of a call.
Chunk CallOf(const Session::AppendOptions& options) {
  return {.columns = options.columns,
          .video = options.video,
          .t_src_ms = options.t_src_ms,
          .pinned = options.pinned,
          .generated = options.generated,
          .excerpt = options.excerpt,
          .of_picture = options.of_picture,
          .observed = options.observer != nullptr};
}

// Rows [done, done + n) of a call.
Chunk PartOf(const Chunk& call, int64_t done, int64_t n, int64_t row_width) {
  Chunk part = call;
  part.n = n;
  if (call.tokens != nullptr) part.tokens += done;
  if (call.embeddings != nullptr) part.embeddings += done * row_width;
  part.first = done;
  part.n_all = call.n;
  part.n_after = call.n - done - n;
  return part;
}

}  // namespace

Session::Session(int64_t budget_bytes)
    : core_(budget_bytes),
      selector_(&core_, &parts_.evidence, &parts_.trace, &rewind_),
      reads_(&core_, &selector_),
      reader_({.core = core_,
               .evidence = parts_.evidence,
               .prediction = parts_.prediction,
               .rewind = rewind_,
               .selector = selector_,
               .reads = reads_}) {}

Result<std::unique_ptr<Session>> Session::Make(Model& model, Backend& backend, const SessionOptions& options) {
  if (!backend.can_run()) return InvalidArgument("this model was loaded for planning only; it cannot run");
  WEIR_ASSIGN_OR_RETURN(SessionPlan plan, PlanSession(model, backend, options));
  // Check the total at once: buffers are allocated one by one, and each alone may still fit. On a device only its own
  // bytes would count, and the device reports out-of-memory itself.
  if (const int64_t available = backend.AvailableBytes(); backend.on_host() && plan.total_bytes > available) {
    return OverBudget("this session needs {} bytes, the system has {} left; ask for a smaller --pot or --budget",
                      plan.total_bytes, available);
  }
  // The plan is the contract: the ledger refuses one byte more, whatever the budget was.
  std::unique_ptr<Session> out(new Session(plan.total_bytes));
  SessionCore& core = out->core_;
  core.model = &model;
  core.backend = &backend;
  core.options = options;
  WEIR_ASSIGN_OR_RETURN(core.policy, options.policy.Make());
  core.needs = NeedsOf(*core.policy, options);
  WEIR_ASSIGN_OR_RETURN(core.pot, Pot::Make(plan.pot, backend, core.ledger));
  WEIR_ASSIGN_OR_RETURN(core.runner, Runner::Make(model, backend, plan.runner, core.ledger));
  core.rows.reserve(static_cast<size_t>(plan.runner.max_rows));
  core.plan = std::move(plan);

  out->space_ = BufferSpace(&backend, &core.ledger);
  SessionParts& parts = out->parts_;
  parts.evidence = EvidenceSet(core.needs, options);
  parts.LayOut(model, backend, core.needs, core.plan, &out->space_);
  parts.ahead.LayOut(model.config().n_vocab, core.plan, &out->space_);
  parts.late.LayOut(model, core.plan, &out->space_);
  if (core.plan.aside_slots > 0) parts.aside.LayOut(model, backend, &out->space_);
  if (options.watch_attention) parts.trace.LayOut(core.plan.pot, &out->space_);
  WEIR_RETURN_IF_ERROR(out->space_.status());
  parts.prediction.Use(&backend, core.runner.get());
  WEIR_RETURN_IF_ERROR(parts.ahead.Use(&core));
  parts.late.Use(&core, &out->selector_, &parts.prediction);
  parts.aside.Use(&core);
  parts.evidence.Clear(core);
  out->selector_.Use(&parts.merger);
  out->selector_.Prepare();
  out->reads_.Prepare();
  return out;
}

Status Session::Append(std::span<const int32_t> tokens, const AppendOptions& options) {
  WEIR_RETURN_IF_ERROR(reader_.CheckTokens(tokens));  // before anything is evicted to make room for them
  if (options.nll != nullptr && !core_.options.nll) {
    return InvalidArgument("this session was made without likelihoods");
  }
  Chunk call = CallOf(options);
  call.n = std::ssize(tokens);
  call.tokens = tokens.data();
  return AppendRows(call, options);
}

Status Session::AppendEmbeddings(std::span<const float> rows, Modality modality, const AppendOptions& options) {
  if (const std::string why = WhyNoPictures(core_.model->config(), *core_.backend); !why.empty()) {
    return Unsupported("{}", why);
  }
  const int64_t width = core_.model->config().row_width();
  if (std::ssize(rows) % width != 0) {
    return InvalidArgument("{} numbers are no whole rows of {}", rows.size(), width);
  }
  if (std::ssize(rows) / width > (1 << 16)) {
    return InvalidArgument("{} rows of one picture or frame; 65,536 are possible", std::ssize(rows) / width);
  }
  if (options.nll != nullptr) return InvalidArgument("nothing predicts an embedding: it has no likelihood");
  if (options.columns < 1 || options.columns > kMaxColumns) {
    return InvalidArgument("a picture of {} columns; 1 to 65,536 are possible", options.columns);
  }
  if (options.video.steps < -1 || options.video.steps > kMaxSteps) {
    return InvalidArgument("a frame {} steps after the one before it; 0 to {} are possible", options.video.steps,
                           kMaxSteps);
  }
  for (float value : rows) {
    if (!std::isfinite(value)) return InvalidArgument("an embedding with a number that is not finite");
  }
  Chunk call = CallOf(options);
  call.n = std::ssize(rows) / width;
  call.embeddings = rows.data();
  call.modality = modality;
  return AppendRows(call, options);
}

Status Session::GrowExcerpt(int64_t n) {
  SeqRange& excerpt = core_.excerpt;
  const int64_t n_held = excerpt.end - excerpt.begin;
  if (n_held + n > core_.plan.excerpt_slots) {
    return OverBudget("an excerpt of {} tokens, where {} slots are left for excerpts", n,
                      core_.plan.excerpt_slots - n_held);
  }
  if (n_held > 0 && excerpt.end != core_.stream.n_seen) {
    return InvalidArgument("an excerpt is in use: take it back before the next one");
  }
  if (n_held == 0) core_.pot->state().SetAside(core_.stream.n_seen);
  // Its slots are free from now on, so that making room for it evicts nothing.
  excerpt = {core_.stream.n_seen - n_held, core_.stream.n_seen + n};
  core_.pot->SetExcerpt(excerpt);
  rewind_.Forbid();
  return Status();
}

Status Session::AppendRows(const Chunk& call, const AppendOptions& options) {
  if (!call.excerpt) {
    Status status = ReadRows(call, options);
    // One that was stopped may be gone on with.
    if (!status.ok() && status.code() != StatusCode::kCancelled) CancelQuestion();
    return status;
  }
  if (call.n == 0) return Status();  // there may be no room for excerpts, and no copy of a state then
  WEIR_RETURN_IF_ERROR(GrowExcerpt(call.n));
  Chunk pinned = call;
  pinned.pinned = true;
  const Status status = ReadRows(pinned, options);
  core_.excerpt.end = core_.stream.n_seen;
  core_.pot->SetExcerpt(core_.excerpt);
  return status;
}

Status Session::PutExcerpt(std::span<const SlotMeta> rows, const WriteSlots& write) {
  Pot& pot = *core_.pot;
  const PotShape& shape = pot.shape();
  if (shape.positions == Positions::kAbs) {
    return Unsupported("keys that are stored with their positions cannot be put back at others");
  }
  if (!core_.backend->on_host()) return Unsupported("keys and values cannot be put back into a device's memory");
  if (core_.model->config().attention.has_axes()) {
    return Unsupported("keys and values cannot be put back where positions have three axes");
  }
  if (core_.model->config().attention.n_state > 0) {
    return Unsupported("keys and values cannot be put back where layers keep a state, which would not read them");
  }
  if (pot.windows() != nullptr) {
    return Unsupported("keys and values cannot be put back where layers with a window hold the newest tokens alone");
  }
  const int64_t n = std::ssize(rows);
  if (n == 0) return Status();
  if (n > pot.n_free()) return OverBudget("an excerpt of {} tokens, where the pot has {} slots free", n, pot.n_free());
  WEIR_RETURN_IF_ERROR(Settle());
  WEIR_RETURN_IF_ERROR(GrowExcerpt(n));
  StreamPlace& stream = core_.stream;
  for (int64_t done = 0; done < n;) {
    const int64_t n_here = std::min<int64_t>(n - done, core_.plan.runner.max_rows);
    core_.rows.clear();
    for (int64_t i = 0; i < n_here; ++i) {
      SlotMeta row = rows[static_cast<size_t>(done + i)];
      ++stream.n_seen_by[static_cast<size_t>(row.modality)];
      row.seq = stream.n_seen + done + i;
      row.t_src_ms = std::max<int64_t>(stream.t_newest_ms, 0);
      row.pinned = true;
      core_.rows.push_back(row);
    }
    WEIR_RETURN_IF_ERROR(pot.BeginAppend(core_.rows));
    done += n_here;
  }
  for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
    for (int32_t head = 0; head < shape.n_kv_heads_of(layer); ++head) {
      const int64_t slot = pot.n_used(layer, head) - n;
      write(layer, head, pot.keys(layer, head) + slot * pot.k_slot_bytes(layer),
            pot.values(layer, head) + slot * pot.v_slot_bytes(layer));
    }
  }
  stream.n_seen += n;
  stream.n_pinned += static_cast<int32_t>(n);
  core_.memo.n_unscored += static_cast<int32_t>(n);
  return Status();
}

Status Session::TakeBackExcerpt() {
  if (n_excerpt() == 0) return Status();
  WEIR_RETURN_IF_ERROR(Settle());
  StreamPlace& stream = core_.stream;
  const SeqRange range = std::exchange(core_.excerpt, {});
  // Something that was read and is taken back before anything else is read leaves no trace in a state either.
  RecurrentState& state = core_.pot->state();
  if (!state.empty() && range.end == stream.n_seen && state.aside() == range.begin) state.BringBack();
  core_.pot->SetExcerpt({});
  WEIR_RETURN_IF_ERROR(core_.pot->DropFromWindows(range));
  const Status status = selector_.TakeBack(range);
  stream.n_pinned -= static_cast<int32_t>(range.end - range.begin);
  if (stream.gaps.back().end == range.begin && stream.gaps.back().begin < range.begin) {
    stream.gaps.back().end = range.end;  // nothing was read between the two
    return status;
  }
  std::rotate(stream.gaps.begin(), stream.gaps.begin() + 1, stream.gaps.end());
  stream.gaps.back() = range;
  return status;
}

Status Session::ReadChunks(const Chunk& call, const AppendOptions& options, bool late, const AttentionWatch** watch) {
  for (int64_t done = 0; done < call.n;) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      return Cancelled("stopped after {} of {} tokens", done, call.n);
    }
    const int64_t n_most = std::min<int64_t>(core_.plan.chunk_rows, call.n - done);
    if (!parts_.late.HasRoom(n_most) || core_.n_free() < n_most) WEIR_RETURN_IF_ERROR(Settle());
    WEIR_ASSIGN_OR_RETURN(const int32_t n, reader_.MakeRoom(call.n - done));
    const Chunk chunk = PartOf(call, done, n, core_.model->config().row_width());
    BatchItem item = reader_.Begin(chunk);
    // Rows that a trace watches: ends of prompts, and tokens of answers that read all slots.
    item.watch = parts_.trace.WatchFor(item, options.generated || (chunk.n_after == 0 && options.end_of_prompt));
    item.last_hidden_only = options.nll == nullptr && parts_.evidence.demand().likelihoods == Normaliser::kNone;
    // Rows of a picture are in memory of an encoder that others may use.
    if (options.observer == nullptr && chunk.tokens != nullptr) item.between = options.between;
    if (late) parts_.ahead.ReadElsewhere(chunk);
    WEIR_ASSIGN_OR_RETURN(const float* hidden,
                          late ? parts_.late.Read(item) : parts_.ahead.Read(chunk, item, options.observer));
    reader_.End(chunk, item, hidden, options.nll == nullptr ? nullptr : options.nll + done);
    parts_.prediction.Offer(parts_.ahead.logits());
    if (late) {
      *watch = item.watch;
    } else if (item.watch != nullptr) {
      WEIR_RETURN_IF_ERROR(parts_.trace.Attended(core_));
    }
    if (options.nll != nullptr) {
      WEIR_RETURN_IF_ERROR(core_.backend->status());  // a failed device leaves them as they were
    }
    done += n;
    if (options.progress) options.progress(done);
  }
  return Status();
}

Status Session::ReadRows(const Chunk& call, const AppendOptions& options) {
  const bool late = options.nll == nullptr && parts_.late.Takes(call);
  if (!late) WEIR_RETURN_IF_ERROR(Settle());
  const AttentionWatch* watch = nullptr;
  WEIR_RETURN_IF_ERROR(ReadChunks(call, options, late, &watch));
  if (!options.end_of_prompt) return Status();
  WEIR_RETURN_IF_ERROR(parts_.late.Finish(true, watch));
  if (watch != nullptr) WEIR_RETURN_IF_ERROR(parts_.trace.Attended(core_));
  return selector_.EndPrompt();
}

Status Session::BeginRound(std::span<const int32_t> question, int64_t n_answer, int64_t n_read) {
  core_.n_question_left = std::ssize(question) - n_read;
  parts_.evidence.BeginRound(core_, question);
  if (core_.stream.n_seen <= n_read) return Status();  // nothing comes before the question
  if (core_.needs.evicts && core_.options.on_overflow == OnOverflow::kEvict) {
    // Do not evict much for an answer that may be short: reserve at most an eighth of the pot.
    const int32_t n_slots = core_.n_slots();
    const int64_t wanted = std::ssize(question) - n_read + std::clamp<int64_t>(n_answer, 0, n_slots / 8);
    const int64_t most = std::min(n_slots / 2, n_slots - core_.stream.n_pinned - (core_.needs.min_slots - 1));
    if (const auto n = static_cast<int32_t>(std::min(wanted, most)); n > 0) {
      if (core_.n_free() < n) WEIR_RETURN_IF_ERROR(Settle());
      WEIR_RETURN_IF_ERROR(selector_.MakeRoom(n));
    }
  }
  if (parts_.evidence.Age(core_)) rewind_.Forbid();
  return Status();
}

Status Session::SetProbe(std::span<const int32_t> tokens) {
  if (tokens.empty() || std::ssize(tokens) > core_.plan.probe_slots) {
    return InvalidArgument("a probe of {} tokens, where {} slots are kept free for it", tokens.size(),
                           core_.plan.probe_slots);
  }
  const int32_t n_vocab = core_.model->config().n_vocab;
  for (int32_t id : tokens) {
    if (id < 0 || id >= n_vocab) {
      return InvalidArgument("token {} of the probe is outside the vocabulary of {}", id, n_vocab);
    }
  }
  core_.memo.probe.assign(tokens.begin(), tokens.end());
  return Status();
}

Status Session::AskAside(std::span<const int32_t> head, std::span<const std::vector<int32_t>> tails,
                         const Aside::Each& each, const std::atomic<bool>* stop) {
  WEIR_RETURN_IF_ERROR(reader_.CheckTokens(head));
  for (const std::vector<int32_t>& tail : tails) WEIR_RETURN_IF_ERROR(reader_.CheckTokens(tail));
  WEIR_RETURN_IF_ERROR(Settle());
  parts_.ahead.Drop();  // its rows wait in slots and in memory that these rows take
  return parts_.aside.Ask(head, tails, each, stop);
}

Result<std::span<float>> Session::Logits() {
  WEIR_RETURN_IF_ERROR(Settle());
  return parts_.prediction.Logits();
}

Status Session::MostLikely(std::span<int32_t> ids, std::span<float> values) {
  WEIR_RETURN_IF_ERROR(Settle());
  return parts_.prediction.MostLikely(ids, values);
}

void Session::Reset() {
  core_.pot->Clear();
  StartAnew();
}

void Session::StartAnew() {
  core_.policy = std::move(core_.options.policy.Make()).value();  // succeeded once with the same options
  core_.stream = {};
  core_.excerpt = {};
  core_.n_question_left = 0;
  parts_.late.Drop();
  parts_.evidence.Clear(core_);
  parts_.prediction.Clear();
  parts_.ahead.Restart();
  reads_.Start(0);
  rewind_.Start(0);
}

int64_t Session::RewindPoint(int64_t n_same, int64_t n_call) const {
  return rewind_.Point(core_, parts_.evidence, n_same, n_call);
}

void Session::Rewind(int64_t n) {
  if (n == 0) return Reset();
  Pot& pot = *core_.pot;
  core_.backend->Synchronise();
  // The row that predicts the next token is removed; its prediction may be stored with that token's slot.
  const std::span<const float> nll = pot.nll(0);
  const float next_nll = nll.empty() ? std::numeric_limits<float>::infinity() : nll[static_cast<size_t>(n)];
  pot.DropLast(pot.n_used() - static_cast<int32_t>(n));
  pot.Return(n);
  StartAnew();
  parts_.evidence.Rewound(core_, static_cast<int32_t>(n));
  parts_.prediction.Clear(next_nll);
  rewind_.Start(n);
  const std::span<const SlotMeta> kept = pot.meta(0);
  const auto n_pinned = std::count_if(kept.begin(), kept.end(), [](const SlotMeta& m) { return m.pinned; });
  core_.stream.n_pinned = static_cast<int32_t>(n_pinned);
  core_.stream.t_newest_ms = kept.back().t_src_ms;
  core_.stream.n_seen = core_.stream.n_seen_by[static_cast<size_t>(Modality::kText)] = n;
}

Held Session::held() const { return SummarizeHeld(*core_.pot, core_.stream.n_seen, core_.stream.gaps); }

SessionCounters Session::counters() const {
  const StreamPlace& stream = core_.stream;
  SessionCounters c;
  c.seen = stream.n_seen;
  c.selections = stream.n_selections;
  const Held held = this->held();
  c.kept = held.n_kept;
  c.dropped = c.seen - c.kept;
  for (size_t m = 0; m < c.by.size(); ++m) {
    c.by[m] = {stream.n_seen_by[m], held.n_kept_by[m], stream.n_seen_by[m] - held.n_kept_by[m]};
  }
  return c;
}

}  // namespace weir
