#include "engine/session.h"

#include <algorithm>
#include <cstring>

namespace weir {
namespace {

constexpr int32_t kDefaultPot = 4096;
constexpr int32_t kDefaultChunk = 256;
constexpr int32_t kLargestPot = 1 << 26;

// Rows read at once in a pot of n slots: large enough for the products to reach their speed, small enough that a chunk
// turns over only a part of the pot.
int32_t ChunkRows(const SessionOptions& options, const PolicyNeeds& needs, int32_t n_slots) {
  int32_t chunk = options.chunk_rows > 0 ? options.chunk_rows : std::clamp(n_slots / 4, 1, kDefaultChunk);
  return std::clamp(chunk, 1, std::max(1, n_slots - (needs.min_slots - 1)));
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
      {MemTag::kMeta, "token metadata of the slots", Pot::MetaBytes(plan.pot)},
      {MemTag::kWorkspace, StrFormat("activations and scratch, %d rows at once", plan.chunk_rows),
       Runner::Bytes(model, backend, shape)},
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
  if (n_slots == 0 && budget > 0) {
    // Largest pot whose plan fits; the plan grows with the pot. Beyond the trained context a pot is of no use unless it
    // is asked for by its size.
    int32_t low = needs.min_slots, high = std::max(needs.min_slots, model.config().n_ctx_train);
    while (low < high) {
      const int32_t mid = low + (high - low + 1) / 2;
      if (PlanFor(model, backend, options, needs, mid).total_bytes <= budget) {
        low = mid;
      } else {
        high = mid - 1;
      }
    }
    n_slots = low;
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
    return OverBudget("a pot of %d tokens with policy %s needs %lld bytes, the budget is %lld; ask for a smaller pot or a "
                      "larger budget",
                      n_slots, name, static_cast<long long>(plan.total_bytes), static_cast<long long>(budget));
  }
  plan.minimum_bytes = minimum.total_bytes;
  return plan;
}

Result<std::unique_ptr<Session>> Session::Make(Model& model, Backend& backend, const SessionOptions& options) {
  WEIR_ASSIGN_OR_RETURN(SessionPlan plan, PlanSession(model, backend, options));
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
  out->chunk_.reserve(static_cast<size_t>(plan.chunk_rows));
  out->targets_.reserve(static_cast<size_t>(plan.chunk_rows));
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
  const int32_t n_keep = std::clamp(policy_->TargetSlots(n_slots, n_coming), 0, n_slots - n_coming);
  const PotShape& shape = pot_->shape();
  // All keep-sets first: a selection that cannot be honoured leaves every group as it was.
  std::vector<KeepSet> keeps(static_cast<size_t>(shape.n_groups()));
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const std::span<const SlotMeta> slots = pot_->meta(group);
    const int32_t n_pinned = static_cast<int32_t>(std::count_if(slots.begin(), slots.end(), [](const SlotMeta& m) { return m.pinned; }));
    if (n_pinned > n_slots - n_coming) {
      return OverBudget("%d of the pot's %d slots are pinned, which leaves no room for %d more tokens", n_pinned, n_slots,
                        n_coming);
    }
    policy_->Select({group, slots}, std::max(n_keep, n_pinned), &keeps[group]);
    if (static_cast<int32_t>(keeps[group].size()) > n_slots - n_coming) {
      return Internal("policy %s kept %zu slots where at most %d may stay", name, keeps[group].size(), n_slots - n_coming);
    }
  }
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    if (trace_ != nullptr) {
      const int32_t layer = shape.granularity == Granularity::kGlobal      ? -1
                            : shape.granularity == Granularity::kPerLayer ? group
                                                                          : group / shape.n_kv_heads;
      const int32_t head = shape.granularity == Granularity::kPerHead ? group % shape.n_kv_heads : -1;
      WEIR_RETURN_IF_ERROR(trace_->Dropped(n_selections_, name, layer, head, pot_->meta(group), keeps[group], "pot full"));
    }
    WEIR_RETURN_IF_ERROR(pot_->Compact(*backend_, group, keeps[group]));
  }
  ++n_selections_;
  return Status();
}

Status Session::Append(std::span<const int32_t> tokens, const AppendOptions& options) {
  if (options.nll != nullptr && !options_.nll) return InvalidArgument("this session was made without likelihoods");
  const int64_t n_embd = model_->config().n_embd;
  const int64_t n_tokens = static_cast<int64_t>(tokens.size());
  for (int64_t done = 0; done < n_tokens;) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) {
      return Cancelled("stopped after %lld of %lld tokens", static_cast<long long>(done), static_cast<long long>(n_tokens));
    }
    const int32_t n = static_cast<int32_t>(std::min<int64_t>(plan_.chunk_rows, n_tokens - done));
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
