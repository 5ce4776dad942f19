// SPDX-License-Identifier: Apache-2.0
// Computes a session's memory before any of it is allocated.
#include "engine/session_plan.h"

#include <fmt/core.h>
#include <algorithm>

#include "engine/session/parts.h"
#include "ops/kv_slots.h"

namespace weir {
namespace {

constexpr int32_t kDefaultPot = 4096;
constexpr int32_t kDefaultChunk = 256;
constexpr int32_t kLargestPot = 1 << 26;

// Rows per forward pass in a pot of n slots: large enough for efficient matrix products, small enough that a chunk
// replaces only part of a pot that evicts.
int32_t ChunkRows(const AttentionLayout& attention, const SessionOptions& options, const PolicyNeeds& needs,
                  int32_t n_slots) {
  // A picture whose rows see each other is read as a whole.
  const int32_t usual = std::max(kDefaultChunk, attention.two_way_pictures ? attention.picture_rows : 0);
  const int32_t wanted = options.chunk_rows > 0 ? options.chunk_rows
                         : needs.evicts         ? std::min(n_slots / 4, usual)
                                                : usual;
  const int32_t most = needs.evicts ? std::min(n_slots / 2, n_slots - (needs.min_slots - 1)) : n_slots;
  return std::clamp(wanted, 1, std::max(1, most));
}

int32_t ExcerptSlots(const SessionOptions& options, int32_t n_slots) {
  return options.excerpt_slots >= 0 ? options.excerpt_slots : n_slots / 4;
}

// Slots beside those of the stream: for excerpts, and for questions aside.
int32_t SpareSlots(const SessionOptions& options, int32_t n_slots) {
  return std::max(ExcerptSlots(options, n_slots), options.aside_slots);
}

// Rows that a layer with a window holds: what the coming one sees, and those that are read at once, or, one at a time,
// so many that making room takes little time.
int64_t WindowRows(int64_t window, int64_t rows_at_once) {
  return window - 1 + std::max(rows_at_once, (window + 15) / 16);
}

// Keys and values of a pot: one line for the layers of each shape.
std::vector<PlanItem> KvItems(const PotShape& pot) {
  std::vector<PlanItem> out;
  for (int32_t first = 0; first < pot.n_layers; ++first) {
    if (pot.pool_of(first) != first) continue;
    PotShape alike = pot;
    alike.layers.clear();
    alike.n_kv_heads = pot.n_kv_heads_of(first);
    alike.head_dim = pot.head_dim_of(first);
    alike.n_layers = 0;
    for (int32_t layer = first; layer < pot.n_layers; ++layer) alike.n_layers += pot.pool_of(layer) == first;
    std::string what = fmt::format("keys and values, {} slots x {} layers x {} KV heads", pot.n_slots, alike.n_layers,
                                   alike.n_kv_heads);
    if (!pot.layers.empty()) what += fmt::format(" of {}", alike.head_dim);
    const int64_t slot_bytes =
        SlotBytes(pot.k_type, alike.head_dim) + (pot.values_in_keys ? 0 : SlotBytes(pot.v_type, alike.head_dim));
    out.push_back({MemTag::kKv, std::move(what), alike.n_heads_total() * pot.n_slots * slot_bytes});
  }
  // All layers lie in the same pages.
  int64_t bytes = 0;
  for (const PlanItem& item : out) bytes += item.bytes;
  out.back().bytes += Pot::KvBytes(pot) - Pot::StateBytes(pot) - Pot::WindowBytes(pot) - bytes;
  if (pot.windows.n_slots == 0) return out;
  PotShape windows = pot.window_pot();
  for (PlanItem& item : KvItems(windows)) {
    item.what += fmt::format(", windows of {}", pot.windows.window);
    out.push_back(std::move(item));
  }
  if (const int64_t n = pot.windows.n_marks; n > 0) {
    out.push_back({MemTag::kKv, fmt::format("keys and values of windows, {} copies to go back to", n),
                   n * Pot::KvBytes(windows)});
  }
  return out;
}

SessionPlan PlanFor(const Model& model, const Backend& backend, const SessionOptions& options, const PolicyNeeds& needs,
                    int32_t n_slots) {
  const ModelConfig& config = model.config();
  SessionParts parts;
  parts.evidence = EvidenceSet(needs, options);
  const EvidenceDemand& demand = parts.evidence.demand();
  SessionPlan plan;
  plan.probe_slots = demand.probe_slots;
  plan.chunk_rows = ChunkRows(config.attention, options, needs, n_slots - plan.probe_slots);
  plan.draft = Drafter::Plan(options.draft).value();  // PlanSession() has checked the options
  const int64_t max_rows = std::max({plan.chunk_rows, plan.probe_slots, plan.draft.most + 1});
  // For the rows of a probe there are slots beside those.
  const int64_t window = config.attention.window, window_rows = WindowRows(window, plan.chunk_rows),
                window_slots = std::max(window_rows, window - 1 + plan.probe_slots);
  const bool apart = !options.windows_in_pot && config.attention.can_hold_windows_apart() && window_rows <= n_slots;
  plan.pot = config.attention.pot(apart);
  plan.pot.n_slots = n_slots + SpareSlots(options, n_slots);
  plan.pot.k_type = options.k_type;
  plan.pot.v_type = plan.pot.values_in_keys ? options.k_type : options.v_type;
  plan.pot.positions = needs.positions;
  plan.pot.granularity = needs.granularity;
  plan.pot.floats = demand.floats;
  plan.pot.state = {.n_floats = config.attention.n_state,
                    .n_marks = options.state_marks,
                    .aside = demand.probe_slots > 0 || plan.pot.n_slots > n_slots};
  plan.pot.spread = needs.spread > 0 ? needs.spread : plan.pot.n_kv_heads;
  plan.pot_slots = n_slots;
  plan.excerpt_slots = ExcerptSlots(options, n_slots);
  plan.aside_slots = options.aside_slots;
  // A prompt that fits the pot can wait as a whole.
  if (LateRows::Suits(model, needs, options)) plan.late_rows = n_slots;
  if (apart) {
    // An excerpt's rows hide as many others from those that come after it, until it is taken back.
    plan.pot.windows.n_rows = static_cast<int32_t>(window_rows);
    plan.pot.windows.n_slots =
        static_cast<int32_t>(window_slots + std::min<int64_t>(plan.pot.n_slots - n_slots, window - 1));
    plan.pot.windows.n_marks = options.state_marks;
  }
  if (ReadAhead::Suits(config.attention, needs)) {
    plan.max_guesses = static_cast<int32_t>(std::min<int64_t>(options.max_guesses, max_rows - 1));
  }
  plan.runner = {.max_rows = max_rows,
                 .max_slots = std::max<int64_t>(plan.pot.max_head_slots(), plan.pot.windows.n_slots),
                 .n_context = n_slots,  // recall does not choose the factors: answers without an excerpt stay the same
                 .nll = options.nll || demand.likelihoods != Normaliser::kNone,
                 .statistics = options.watch_attention || demand.attention};
  PotShape without_excerpts = plan.pot;
  without_excerpts.n_slots = n_slots;
  if (apart) without_excerpts.windows.n_slots = static_cast<int32_t>(window_slots);
  const int64_t potted_kv = Pot::KvBytes(without_excerpts);
  BufferSpace space;
  parts.LayOut(model, backend, needs, plan, &space);
  plan.items = KvItems(without_excerpts);
  if (const int64_t bytes = Pot::StateBytes(plan.pot); bytes > 0) {
    plan.items.push_back({MemTag::kKv,
                          fmt::format("state of {} layers in place of keys and values, and {} copies",
                                      config.attention.n_state_layers, options.state_marks + plan.pot.state.aside),
                          bytes});
  }
  if (const int32_t spare = plan.pot.n_slots - n_slots; spare > 0) {
    const char* const whose = plan.aside_slots == 0     ? "excerpts"
                              : plan.excerpt_slots == 0 ? "questions aside"
                                                        : "excerpts and questions aside";
    plan.items.push_back({MemTag::kKv, fmt::format("keys and values of {}, {} slots", whose, spare),
                          Pot::KvBytes(plan.pot) - potted_kv});
  }
  const PlanItem others[] = {
      {MemTag::kMeta, "metadata and statistics of the slots, selections, rotary tables",
       Pot::MetaBytes(plan.pot) + Runner::MetaBytes(model, backend, plan.runner) + space.bytes(MemTag::kMeta)},
      {MemTag::kWorkspace, fmt::format("activations and scratch, {} rows at once", max_rows),
       Runner::WorkspaceBytes(model, backend, plan.runner) + space.bytes(MemTag::kWorkspace)},
      {MemTag::kLogits, "logits and last hidden state", space.bytes(MemTag::kLogits)},
  };
  plan.items.insert(plan.items.end(), std::begin(others), std::end(others));
  if (const int32_t most = std::max(plan.max_guesses, plan.draft.most); most > 0) {
    BufferSpace ahead;
    parts.ahead.LayOut(config.n_vocab, plan, &ahead);
    plan.items.push_back({MemTag::kLogits, fmt::format("guesses of what comes next, {} at once", most),
                          ahead.bytes(MemTag::kLogits) + ahead.bytes(MemTag::kMeta)});
  }
  if (plan.draft.model != nullptr) {
    for (PlanItem& item : Drafter::Items(backend, plan.draft)) plan.items.push_back(std::move(item));
  }
  if (plan.late_rows > 0) {
    BufferSpace late;
    parts.late.LayOut(model, plan, &late);
    plan.items.push_back({MemTag::kWorkspace, fmt::format("rows that wait for their prompt's end, {}", plan.late_rows),
                          late.bytes(MemTag::kWorkspace)});
    plan.items.push_back({MemTag::kMeta, "which of them go on", late.bytes(MemTag::kMeta)});
  }
  if (plan.aside_slots > 0) {
    BufferSpace aside;
    parts.aside.LayOut(model, backend, &aside);
    plan.items.push_back({MemTag::kLogits, "logits of questions aside", aside.bytes(MemTag::kLogits)});
  }
  if (options.watch_attention) {
    BufferSpace watched;
    parts.trace.LayOut(plan.pot, &watched);
    plan.items.push_back(
        {MemTag::kWorkspace, "where the newest token attends, for the trace", watched.bytes(MemTag::kWorkspace)});
  }
  plan.items.insert(plan.items.end(), options.beside.begin(), options.beside.end());
  for (const PlanItem& item : plan.items) plan.total_bytes += item.bytes;
  return plan;
}

// Whether a session with and one without pictures hold the same of every slot.
bool PotIsThatOfPictures(const Policy& policy, const SessionOptions& options) {
  const PolicyNeeds with = policy.Needs(), without = policy.NeedsOfText();
  return with.granularity == without.granularity &&
         EvidenceSet(with, options).demand().floats.bits() == EvidenceSet(without, options).demand().floats.bits();
}

}  // namespace

Result<SessionPlan> PlanSession(const Model& model, const Backend& backend, const SessionOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy, options.policy.Make());
  const PolicyNeeds needs = NeedsOf(*policy, options);
  const char* name = options.policy.info->name;
  if (options.pot_slots < 0 || options.pot_slots > kLargestPot) {
    return InvalidArgument("a pot of {} tokens: expected 1 to {}", options.pot_slots, kLargestPot);
  }
  if (options.chunk_rows < 0) return InvalidArgument("a chunk of {} rows: expected at least 1", options.chunk_rows);
  if (options.watch_attention && needs.granularity == Granularity::kPerHead) {
    return InvalidArgument(
        "policy {} decides for each head; attention is traced under policies that decide for each layer "
        "or once for all of them",
        name);
  }
  if (needs.merge != Merge::kNone && (!backend.on_host() || needs.positions == Positions::kAbs)) {
    return Unsupported("policy {} merges what it drops, which is built for {}; leave its merging out", name,
                       backend.on_host() ? "positions of the pot" : "the CPU");
  }
  if (needs.evidence.noise.on && !backend.on_host()) {
    return Unsupported("policy {} ranks by attention with noise, which is built for the CPU; use another, such as h2o",
                       name);
  }
  SessionOptions smallest = options;
  smallest.chunk_rows = 1;
  if (options.max_probe < 0 || options.max_probe > kLargestPot || std::ssize(options.probe) > kLargestPot) {
    return InvalidArgument("a probe of more than {} tokens", kLargestPot);
  }
  if (options.max_guesses < 0 || options.max_guesses > 64) {
    return InvalidArgument("{} guesses of what comes next: expected 0 to 64", options.max_guesses);
  }
  if (options.draft.model != nullptr) {
    WEIR_RETURN_IF_ERROR(Drafter::Plan(options.draft).status());
    if (!ReadAhead::Suits(model.config().attention, needs)) {
      return Unsupported(
          "a draft's guesses cannot be taken back here: policy {} sums the attention of every row, or layers of {} "
          "keep "
          "a state or have positions with three axes; leave the draft out",
          name, model.config().architecture);
    }
  }
  if (options.state_marks < 0 || options.state_marks > 64) {
    return InvalidArgument("{} copies of a state to go back to: expected 0 to 64", options.state_marks);
  }
  if (options.excerpt_slots < -1 || options.excerpt_slots > kLargestPot) {
    return InvalidArgument("excerpts of {} tokens: expected 0 to {}", options.excerpt_slots, kLargestPot);
  }
  if (options.aside_slots < 0 || options.aside_slots > kLargestPot) {
    return InvalidArgument("questions of {} tokens aside: expected 0 to {}", options.aside_slots, kLargestPot);
  }
  const EvidenceSet evidence(needs, options);
  WEIR_RETURN_IF_ERROR(evidence.Check(options));
  const int32_t min_slots = needs.min_slots + evidence.demand().probe_slots;
  SessionPlan minimum = PlanFor(model, backend, smallest, needs, min_slots);
  WEIR_RETURN_IF_ERROR(Pot::Check(minimum.pot));
  for (const DType type : {minimum.pot.k_type, minimum.pot.v_type}) {
    if (backend.on_host() || !IsTransformed(type)) continue;
    return Unsupported("a {} cache is not built for {}; use f16 or q8_0 there, or the CPU", InfoOf(type).name,
                       backend.name());
  }

  int32_t n_slots = options.pot_slots;
  if (n_slots > 0 && n_slots < min_slots) {
    return InvalidArgument("a pot of {} tokens is too small for policy {}, which needs at least {}", n_slots, name,
                           min_slots);
  }
  const int64_t budget = options.budget_bytes;
  if (budget > 0 && budget < minimum.total_bytes) {
    return OverBudget("a budget of {} bytes is too small for this model with policy {}; the smallest that works is {}",
                      budget, name, minimum.total_bytes);
  }
  // Largest pot whose plan fits; the plan grows with the pot.
  const auto largest_pot = [&](int32_t most) {
    int32_t low = min_slots, high = std::max(min_slots, most);
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
    // A pot larger than the trained context is only made if its size was requested.
    n_slots = largest_pot(model.config().n_ctx_train);
  } else if (n_slots == 0) {
    // With its excerpts the pot stays within the trained context.
    n_slots = std::max(min_slots, std::min(kDefaultPot, model.config().n_ctx_train));
    while (n_slots > min_slots && n_slots + SpareSlots(options, n_slots) > model.config().n_ctx_train) --n_slots;
  }
  if (const int32_t most = model.config().attention.n_learned_positions;
      most > 0 && n_slots + SpareSlots(options, n_slots) > most) {
    return InvalidArgument("a pot of {} tokens: this model has learned {} positions, which is its largest pot",
                           n_slots + SpareSlots(options, n_slots), most);
  }
  SessionPlan plan = PlanFor(model, backend, options, needs, n_slots);
  if (budget > 0 && plan.total_bytes > budget && options.chunk_rows == 0) {
    // For a requested pot, or the smallest one: try smaller chunks before giving up.
    SessionOptions narrow = options;
    for (narrow.chunk_rows = plan.chunk_rows; plan.total_bytes > budget && narrow.chunk_rows > 1;) {
      narrow.chunk_rows /= 2;
      plan = PlanFor(model, backend, narrow, needs, n_slots);
    }
  }
  if (budget > 0 && plan.total_bytes > budget) {
    return OverBudget(
        "a pot of {} tokens with policy {} needs {} bytes, the budget is {}; the largest pot that fits has {}", n_slots,
        name, plan.total_bytes, budget, largest_pot(n_slots));
  }
  plan.minimum_bytes = minimum.total_bytes;
  plan.pictures = options.pictures || PotIsThatOfPictures(*policy, options);
  return plan;
}

}  // namespace weir
