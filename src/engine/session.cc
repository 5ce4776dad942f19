#include "engine/session.h"

#include <algorithm>
#include <cstring>

namespace weir {
namespace {

constexpr int32_t kDefaultPot = 4096;
constexpr int32_t kDefaultChunk = 256;
constexpr int32_t kLargestPot = 1 << 26;

// Rows read at once in a pot of n slots: large enough for the products to reach their speed, small enough that a chunk
// turns over only a part of a pot that evicts.
int32_t ChunkRows(const SessionOptions& options, const PolicyNeeds& needs, int32_t n_slots) {
  const int32_t wanted = options.chunk_rows > 0 ? options.chunk_rows : needs.evicts ? std::min(n_slots / 4, kDefaultChunk) : kDefaultChunk;
  const int32_t most = needs.evicts ? std::min(n_slots / 2, n_slots - (needs.min_slots - 1)) : n_slots;
  return std::clamp(wanted, 1, std::max(1, most));
}

// Bytes of a session's own vectors: a chunk's metadata and targets, one keep-set per group.
int64_t BookkeepingBytes(const PotShape& pot, int32_t chunk_rows) {
  return chunk_rows * static_cast<int64_t>(sizeof(SlotMeta) + sizeof(int32_t)) +
         pot.n_groups() * (static_cast<int64_t>(pot.n_slots) * static_cast<int64_t>(sizeof(int32_t)) + static_cast<int64_t>(sizeof(KeepSet)));
}

SessionPlan PlanFor(const Model& model, const Backend& backend, const SessionOptions& options, const PolicyNeeds& needs,
                    int32_t n_slots) {
  const ModelConfig& config = model.config();
  SessionPlan plan;
  plan.pot.n_layers = config.attention.n_layers;
  plan.pot.n_kv_heads = config.attention.n_kv_heads;
  plan.pot.head_dim = config.attention.head_dim;
  plan.pot.n_slots = n_slots;
  plan.pot.k_type = options.k_type;
  plan.pot.v_type = options.v_type;
  plan.pot.positions = needs.positions;
  plan.pot.granularity = needs.granularity;
  plan.chunk_rows = ChunkRows(options, needs, n_slots);
  const RunnerShape shape{plan.chunk_rows, n_slots, options.nll};
  plan.items = {
      {MemTag::kKv, StrFormat("keys and values, %d slots x %d layers x %d KV heads", n_slots, plan.pot.n_layers,
                              plan.pot.n_kv_heads),
       Pot::KvBytes(plan.pot)},
      {MemTag::kMeta, "token metadata of the slots, selections, rotary tables",
       Pot::MetaBytes(plan.pot) + Runner::MetaBytes(model, shape) + BookkeepingBytes(plan.pot, plan.chunk_rows)},
      {MemTag::kWorkspace, StrFormat("activations and scratch, %d rows at once", plan.chunk_rows),
       Runner::WorkspaceBytes(model, backend, shape)},
      {MemTag::kLogits, "logits and last hidden state",
       PageRound(static_cast<int64_t>(config.n_vocab) * 4) + PageRound(static_cast<int64_t>(config.n_embd) * 4)},
  };
  for (const PlanItem& item : plan.items) plan.total_bytes += item.bytes;
  return plan;
}

}  // namespace

Result<SessionPlan> PlanSession(const Model& model, const Backend& backend, const SessionOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy, options.policy.Make());
  const PolicyNeeds needs = policy->Needs();
  const char* name = options.policy.info->name;
  if (options.pot_slots < 0 || options.pot_slots > kLargestPot) {
    return InvalidArgument("a pot of %d tokens: expected 1 to %d", options.pot_slots, kLargestPot);
  }
  if (options.chunk_rows < 0) return InvalidArgument("a chunk of %d rows: expected at least 1", options.chunk_rows);
  SessionOptions smallest = options;
  smallest.chunk_rows = 1;
  SessionPlan minimum = PlanFor(model, backend, smallest, needs, needs.min_slots);
  WEIR_RETURN_IF_ERROR(Pot::Check(minimum.pot));

  int32_t n_slots = options.pot_slots;
  if (n_slots > 0 && n_slots < needs.min_slots) {
    return InvalidArgument("a pot of %d tokens is too small for policy %s, which needs at least %d", n_slots, name,
                           needs.min_slots);
  }
  const int64_t budget = options.budget_bytes;
  if (budget > 0 && budget < minimum.total_bytes) {
    return OverBudget("a budget of %lld bytes is too small for this model with policy %s; the smallest that works is %lld",
                      static_cast<long long>(budget), name, static_cast<long long>(minimum.total_bytes));
  }
  // Largest pot whose plan fits; the plan grows with the pot.
  const auto largest_pot = [&](int32_t most) {
    int32_t low = needs.min_slots, high = std::max(needs.min_slots, most);
    while (low < high) {
      const int32_t mid = low + (high - low + 1) / 2;
      if (PlanFor(model, backend, options, needs, mid).total_bytes <= budget) {
        low = mid;
      } else {
        high = mid - 1;
      }
    }
    return low;
  };
  if (n_slots == 0 && budget > 0) {
    // Beyond the trained context a pot is of no use unless it is asked for by its size.
    n_slots = largest_pot(model.config().n_ctx_train);
  } else if (n_slots == 0) {
    n_slots = std::max(needs.min_slots, std::min(kDefaultPot, model.config().n_ctx_train));
  }
  SessionPlan plan = PlanFor(model, backend, options, needs, n_slots);
  if (budget > 0 && plan.total_bytes > budget && options.chunk_rows == 0) {
    // A pot that was asked for, or the smallest one: read in smaller chunks before giving up.
    SessionOptions narrow = options;
    for (narrow.chunk_rows = plan.chunk_rows; plan.total_bytes > budget && narrow.chunk_rows > 1;) {
      narrow.chunk_rows /= 2;
      plan = PlanFor(model, backend, narrow, needs, n_slots);
    }
  }
  if (budget > 0 && plan.total_bytes > budget) {
    return OverBudget("a pot of %d tokens with policy %s needs %lld bytes, the budget is %lld; the largest pot that fits has %d",
                      n_slots, name, static_cast<long long>(plan.total_bytes), static_cast<long long>(budget),
                      largest_pot(n_slots));
  }
  plan.minimum_bytes = minimum.total_bytes;
  return plan;
}

Result<std::unique_ptr<Session>> Session::Make(Model& model, Backend& backend, const SessionOptions& options) {
  if (!backend.can_run()) return InvalidArgument("this model was loaded for planning only; it cannot run");
  WEIR_ASSIGN_OR_RETURN(SessionPlan plan, PlanSession(model, backend, options));
  // Asked for the whole at once: buffers are taken one by one, and each alone may still fit.
  if (const int64_t available = AvailableHostBytes(); plan.total_bytes > available) {
    return OverBudget("this session needs %lld bytes, the system has %lld left; ask for a smaller --pot or --budget",
                      static_cast<long long>(plan.total_bytes), static_cast<long long>(available));
  }
  // What was planned is the contract: one byte more is refused, whatever the budget was.
  std::unique_ptr<Session> out(new Session(plan.total_bytes));
  out->model_ = &model;
  out->backend_ = &backend;
  out->options_ = options;
  WEIR_ASSIGN_OR_RETURN(out->policy_, options.policy.Make());
  WEIR_ASSIGN_OR_RETURN(out->pot_, Pot::Make(plan.pot, out->ledger_));
  const RunnerShape shape{plan.chunk_rows, plan.pot.n_slots, options.nll};
  WEIR_ASSIGN_OR_RETURN(out->runner_, Runner::Make(model, backend, shape, out->ledger_));
  const ModelConfig& config = model.config();
  WEIR_ASSIGN_OR_RETURN(out->logits_, HostBuffer::Allocate(out->ledger_, MemTag::kLogits,
                                                           static_cast<int64_t>(config.n_vocab) * 4));
  WEIR_ASSIGN_OR_RETURN(out->last_hidden_, HostBuffer::Allocate(out->ledger_, MemTag::kLogits,
                                                                static_cast<int64_t>(config.n_embd) * 4));
  WEIR_ASSIGN_OR_RETURN(out->bookkeeping_,
                        out->ledger_.Reserve(MemTag::kMeta, BookkeepingBytes(plan.pot, plan.chunk_rows)));
  out->chunk_.reserve(static_cast<size_t>(plan.chunk_rows));
  out->targets_.reserve(static_cast<size_t>(plan.chunk_rows));
  out->keeps_.resize(static_cast<size_t>(plan.pot.n_groups()));
  for (KeepSet& keep : out->keeps_) keep.reserve(static_cast<size_t>(plan.pot.n_slots));
  out->plan_ = std::move(plan);
  return out;
}

Status Session::MakeRoom(int32_t n_coming) {
  if (pot_->n_free() >= n_coming) return Status();
  const int32_t n_slots = plan_.pot.n_slots;
  const char* name = options_.policy.info->name;
  if (!policy_->Needs().evicts) {
    return OverBudget("the pot of %d tokens is full after %lld, and policy %s never forgets; use a larger --pot or another "
                      "--policy",
                      n_slots, static_cast<long long>(n_seen_), name);
  }
  if (options_.on_overflow == OnOverflow::kError) {
    return OverBudget("the pot of %d tokens is full after %lld, and --on-overflow error forbids forgetting", n_slots,
                      static_cast<long long>(n_seen_));
  }
  const int32_t target = std::max(policy_->TargetSlots(n_slots, n_coming), n_pinned_ + policy_->Needs().min_slots - 1);
  const int32_t n_keep = std::clamp(target, 0, n_slots - n_coming);
  const PotShape& shape = pot_->shape();
  // All keep-sets first: a selection that cannot be honoured leaves every group as it was.
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const std::span<const SlotMeta> slots = pot_->meta(group);
    policy_->Select({group, slots}, n_keep, &keeps_[group]);
    if (static_cast<int32_t>(keeps_[group].size()) > n_slots - n_coming) {
      return Internal("policy %s kept %zu slots where at most %d may stay", name, keeps_[group].size(), n_slots - n_coming);
    }
  }
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    if (trace_ != nullptr) {
      const int32_t layer = shape.granularity == Granularity::kGlobal      ? -1
                            : shape.granularity == Granularity::kPerLayer ? group
                                                                          : group / shape.n_kv_heads;
      const int32_t head = shape.granularity == Granularity::kPerHead ? group % shape.n_kv_heads : -1;
      const Status written =
          trace_->Dropped(n_selections_, name, layer, head, pot_->meta(group), keeps_[group], "pot full");
      if (!written.ok()) {
        trace_ = nullptr;  // told once; the session goes on without it
        return written;
      }
    }
    WEIR_RETURN_IF_ERROR(pot_->Compact(*backend_, group, keeps_[group]));
  }
  ++n_selections_;
  return Status();
}

int32_t Session::NextChunkRows(int64_t n_left) const {
  const PolicyNeeds needs = policy_->Needs();
  int32_t rows = plan_.chunk_rows;
  if (needs.evicts && n_pinned_ > 0) rows = std::min(rows, plan_.pot.n_slots - n_pinned_ - (needs.min_slots - 1));
  return static_cast<int32_t>(std::min<int64_t>(std::max(rows, 0), n_left));
}

Status Session::Append(std::span<const int32_t> tokens, const AppendOptions& options) {
  // Checked before anything is forgotten to make room for them.
  for (int32_t id : tokens) {
    if (id < 0 || id >= model_->config().n_vocab) {
      return InvalidArgument("token %d is outside the vocabulary of %d", id, model_->config().n_vocab);
    }
  }
  if (options.nll != nullptr && !options_.nll) return InvalidArgument("this session was made without likelihoods");
  const int64_t n_embd = model_->config().n_embd;
  const int64_t n_tokens = static_cast<int64_t>(tokens.size());
  for (int64_t done = 0; done < n_tokens;) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      return Cancelled("stopped after %lld of %lld tokens", static_cast<long long>(done), static_cast<long long>(n_tokens));
    }
    const int32_t n = NextChunkRows(n_tokens - done);
    if (n == 0) {
      return OverBudget("%d of the pot's %d slots are pinned, which leaves no room for more tokens", n_pinned_, plan_.pot.n_slots);
    }
    WEIR_RETURN_IF_ERROR(MakeRoom(n));
    chunk_.clear();
    for (int32_t i = 0; i < n; ++i) {
      SlotMeta meta;
      meta.seq = n_seen_ + i;
      meta.t_src_ms = options.t_src_ms;
      meta.token_id = tokens[done + i];
      meta.pinned = options.pinned;
      chunk_.push_back(meta);
    }
    const BatchItem item{pot_.get(), chunk_};
    WEIR_ASSIGN_OR_RETURN(const float* hidden, runner_->Forward({&item, 1}, options.observer));
    if (options.nll != nullptr) {
      // Row r predicts token r + 1; the first token of the chunk is predicted by the last row of the previous one.
      const int32_t first = tokens[done];
      if (has_last_) {
        runner_->HeadNll(last_hidden_.as<float>(), &first, 1, options.nll + done);
      } else {
        options.nll[done] = 0;
      }
      if (n > 1) {
        targets_.assign(tokens.begin() + done + 1, tokens.begin() + done + n);
        runner_->HeadNll(hidden, targets_.data(), n - 1, options.nll + done + 1);
      }
    }
    std::memcpy(last_hidden_.data(), hidden + (n - 1) * n_embd, static_cast<size_t>(n_embd) * 4);
    has_last_ = true;
    logits_fresh_ = false;
    n_seen_ += n;
    if (options.pinned) n_pinned_ += n;
    done += n;
    if (options.progress) options.progress(done);
  }
  return Status();
}

Result<std::span<float>> Session::Logits() {
  if (!has_last_) return InvalidArgument("no token was read yet, so there is nothing to continue");
  if (!logits_fresh_) {
    runner_->Logits(last_hidden_.as<float>(), 1, logits_.as<float>());
    logits_fresh_ = true;
  }
  return std::span<float>(logits_.as<float>(), static_cast<size_t>(model_->config().n_vocab));
}

void Session::Reset() {
  pot_->Clear();
  policy_ = std::move(options_.policy.Make()).value();  // succeeded once with the same options
  has_last_ = logits_fresh_ = false;
  n_seen_ = n_selections_ = 0;
  n_pinned_ = 0;
}

SessionCounters Session::counters() const {
  SessionCounters c;
  c.seen = n_seen_;
  c.selections = n_selections_;
  if (plan_.pot.granularity == Granularity::kGlobal) {
    c.kept = pot_->n_used();
  } else {
    std::vector<int64_t> seqs;
    for (int32_t group = 0; group < plan_.pot.n_groups(); ++group) {
      for (const SlotMeta& m : pot_->meta(group)) seqs.push_back(m.seq);
    }
    std::sort(seqs.begin(), seqs.end());
    c.kept = std::unique(seqs.begin(), seqs.end()) - seqs.begin();
  }
  c.dropped = c.seen - c.kept;
  return c;
}

}  // namespace weir
