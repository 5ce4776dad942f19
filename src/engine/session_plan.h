// SPDX-License-Identifier: Apache-2.0
// A session's options and its memory plan: everything is planned (PlanSession, printed by `weir plan`), then reserved
// when the session is made, and never grows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/status.h"
#include "engine/runner.h"
#include "kv/types.h"
#include "model/architecture.h"
#include "policy/policy.h"

namespace weir {

enum class OnOverflow { kEvict, kError };

// One line of the plan.
struct PlanItem {
  MemTag tag;
  std::string what;
  int64_t bytes;
};

// Guesses by a draft model (engine/session/drafter.h).
struct DraftOptions {
  // Of the session's vocabulary, on its backend (engine/loaded_draft.h); outlives the session. nullptr: none.
  Model* model = nullptr;
  int32_t most = 7;       // guesses at once
  int32_t least = 0;      // fewer are not read
  float sure = 0.3f;      // the draft goes on while it gives its likeliest token at least this probability
  int32_t pot_slots = 0;  // of the draft's own pot; 0: 1,024, or the context it was trained with
};

struct SessionOptions {
  PolicySpec policy;
  int32_t pot_slots = 0;     // |M|; 0: as many as fit in budget_bytes, at most the trained context; without a
                             // budget the trained context, at most 4096
  int64_t budget_bytes = 0;  // 0: only the pot limits the session
  int32_t chunk_rows = 0;    // rows per forward pass; 0: 256 (AttentionLayout::picture_rows where those are more), or a
                             // quarter of a pot that evicts. At most half of a pot that evicts: one chunk must not
                             // replace the whole pot
  DType k_type = DType::kF16, v_type = DType::kF16;
  OnOverflow on_overflow = OnOverflow::kEvict;
  bool nll = false;  // Append() will return log-likelihoods
  // Pictures may come. Without, the policy leaves out what it needs for them alone (Policy::NeedsOfText()); if some
  // come all the same, they are kept and forgotten like text.
  bool pictures = true;
  // Tokens of the policy's probe (chat/probe.h makes them); max_probe slots are kept free for it, 0: probe.size().
  std::vector<int32_t> probe;
  int32_t max_probe = 0;
  // Tokens that are guessed and read in one pass with a token of an answer, at most (engine/session/read_ahead.h). 0:
  // none. No text changes with it. They take a row of logits each.
  int32_t max_guesses = 0;
  // A draft model guesses where the text says nothing. No text changes with it either. Its pot and working memory are
  // part of the session's bytes. kUnsupported where nothing can be read ahead.
  DraftOptions draft;
  bool always_guess = false;  // whether it pays or not
  // More slots than pot_slots, kept free for excerpts (Session::AppendOptions::excerpt). -1: a quarter of pot_slots.
  int32_t excerpt_slots = 0;
  // Slots kept free for questions asked aside (Session::AskAside()): tokens of the longest one. They are beside
  // pot_slots; an excerpt's may be among them, as the two are never there together. 0: nothing is asked aside.
  int32_t aside_slots = 0;
  // Copies of what cannot un-read, a model's recurrent state and windows, at places that Session::Rewind() may go back
  // to.
  int32_t state_marks = 0;
  // Layers with a sliding window hold what the policy keeps, like the others. Otherwise, where some layers have none
  // and the pot is larger than a window needs, they hold the newest tokens and no more (PotShape::windows).
  bool windows_in_pot = false;
  // A trace may record attention (TraceInfo::attention_rows). Costs one float per slot and layer.
  bool watch_attention = false;
  // Additional memory that the session's owner will reserve in its ledger; part of the plan and of the budget.
  std::vector<PlanItem> beside;
};

// The part of a plan that belongs to a draft model.
struct DraftPlan {
  Model* model = nullptr;  // nullptr: there is none
  int32_t most = 0, least = 0;
  float sure = 0;
  PotShape pot;
  RunnerShape runner;
};

// The whole ledger of a session, before a byte is allocated.
struct SessionPlan {
  PotShape pot;               // with the slots for excerpts and for questions aside
  int32_t pot_slots = 0;      // |M|: without them
  int32_t excerpt_slots = 0;  // for what was forgotten and is read again
  int32_t aside_slots = 0;    // for questions aside; the same slots, as many as the larger of the two
  int32_t chunk_rows = 0;
  bool pictures = true;     // as in the options; also where the pot would be the same with them
  int32_t probe_slots = 0;  // of pot_slots, kept free for a probe
  int32_t late_rows = 0;    // of a prompt, that may wait behind its first layers (engine/session/late_rows.h)
  int32_t max_guesses = 0;  // as in the options, or fewer where chunks are smaller; 0 where none would be read
  DraftPlan draft;
  RunnerShape runner;
  std::vector<PlanItem> items;
  int64_t total_bytes = 0;
  int64_t minimum_bytes = 0;  // smallest budget this policy, model and KV type can work with
};

// What the policy needs in a session with these options.
inline PolicyNeeds NeedsOf(const Policy& policy, const SessionOptions& options) {
  return options.pictures ? policy.Needs() : policy.NeedsOfText();
}

// kOverBudget if budget_bytes is too small: the message gives the smallest budget that works or, if a pot size was
// requested, the largest pot that fits. kInvalidArgument if the pot is smaller than the policy needs, or if
// watch_attention is used with a policy that decides per head.
Result<SessionPlan> PlanSession(const Model& model, const Backend& backend, const SessionOptions& options);

}  // namespace weir
