// SPDX-License-Identifier: Apache-2.0
// Eviction policies: which slots are kept when a pot is full.
//
// To add one, add a file src/policy/my_policy.cc whose first line is `// weir-plugin: policy` and which defines `extern
// const PolicyInfo kMyPolicy` (docs/recipes/add-a-policy.md). The build generates the table that AllPolicyInfos()
// returns from the files in this folder.
//
// A policy sees metadata, never tensors, models or the store. It returns a keep-set; the engine compacts, renumbers and
// traces. Budgets are counts of slots, never ratios.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/options.h"
#include "base/status.h"
#include "kv/evidence.h"
#include "kv/types.h"

namespace weir {

// What becomes of slots that a selection drops: they are forgotten, or go into kept ones
// (engine/session/slot_merger.h).
enum class Merge { kNone, kAverage, kPivot, kWeighted };

// Declared by a policy before the pot is made. Statistics that are not declared are not collected and cost nothing.
struct PolicyNeeds {
  Positions positions = Positions::kCache;
  Granularity granularity = Granularity::kGlobal;
  Evidence evidence;      // statistics kept beside every slot; attention needs kPerLayer or kPerHead
  int32_t spread = 1;     // largest share of one head, as a multiple of the pot's slots; 0: as many as a layer has KV
                          // heads
  int32_t min_slots = 1;  // smallest pot that leaves room for one new token; pinned slots and the probe are added to it
  bool evicts = true;     // false: a full pot is an error and the engine never calls Select()
  // EvidenceRows::kProbe: the text whose rows vote before every selection. "{question}" in it is replaced by the
  // question, or by nothing if none is known.
  std::string probe;
  bool probe_in_template = false;  // the probe ends like a user's turn: the chat template's suffix follows it
  // kProbe: from the start of a round to the next one, this many of the question's last rows vote instead of the probe.
  // 0: off.
  int32_t question_rows = 0;
  float nll_decay = 1;        // NLLs are multiplied by it when a round starts
  bool trims_prompt = false;  // SelectAfterPrompt() is called after each prompt
  // K > 1: while an answer about pictures is written, only every K-th token reads all slots, the others those of
  // SelectRead(). The voting rows are then those that read all.
  int32_t read_every = 0;
  // K > 0: rows of a prompt about pictures may end after the model's first K layers. Those that SelectRows() leaves out
  // are neither computed nor stored behind them. Needs kPerLayer, and attention of a prompt's last row.
  int32_t filter_layers = 0;
  // A policy never sees what a slot holds: which kept slot receives a dropped one follows from the keys. Only in the
  // host's memory, and with positions of the pot.
  Merge merge = Merge::kNone;
  int32_t scratch_per_slot = 20;  // working memory of Select() in bytes, per slot of a pot's largest group
};

// One metadata group's used slots at the moment of a selection. All spans have one entry per slot or none.
struct SlotView {
  int32_t group = 0;
  int32_t layer = -1, head = -1;         // the group's layer and head; -1: all of them
  int32_t n_layers = 0, n_kv_heads = 0;  // of the pot; of the group's layer
  // Layers of one pool have equal heads, and only those can use each other's slots: the lowest of them. 0 everywhere
  // unless the model's layers differ.
  int32_t pool = 0;
  std::span<const SlotMeta> slots;  // slot order: oldest first
  std::span<const float> scores;    // the declared attention or vector statistic
  std::span<const float> nll;       // -log P when the token was read; +inf for the first of the stream; 0 for
                                    // tokens that nothing predicts (visual ones)
  std::span<const float> novelty;   // Evidence::recent_frames: of visual tokens before the recent frames, else 0
  std::span<const float> scenes;    // Evidence::scene_change, once the stream has contained a picture: 0 for text,
                                    // else the number of the scene, negative for what its first frame showed too
  std::span<const float> visual;    // Evidence::visual_vector, once the stream has contained a picture
  int32_t n_rows = 0;               // rows of queries in `scores` since they were last reset (the divisor of a mean)
  // Of a row's attention, what these slots have on average, where `scores` are sums over rows and means over heads of a
  // model with attention sinks, which take the rest; otherwise 1.
  float row_attention = 1;
  int32_t n_unscored = 0;     // newest slots, read after `scores` were collected: their scores are 0
  int64_t n_seen_visual = 0;  // visual tokens of the stream so far, kept or not
  int64_t n_seen = 0;         // tokens of the stream so far: n_seen - seq queries could see a slot
};

// One object per session. Its answers depend only on the view and its options: all state that a stream leaves is in the
// pot, so that a saved pot is a saved policy. No locks.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual PolicyNeeds Needs() const = 0;
  // The same for a session that expects no pictures: without what pictures alone need. Of a stream of text it must keep
  // what it keeps with Needs(); statistics of pictures are then absent from the views.
  virtual PolicyNeeds NeedsOfText() const { return Needs(); }

  // The pot holds n_slots slots per head (less the probe's) and n_coming new tokens need room. How many slots may be
  // kept? Result in [0, n_slots - n_coming]; a smaller result makes selections fewer and larger.
  virtual int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const { return n_slots - n_coming; }

  // Slots to keep after a whole prompt was read; -1: all (SnapKV and similar policies compress here).
  virtual int32_t TargetAfterPrompt(int32_t n_slots) const { return -1; }

  // Chooses exactly min(n_keep, slots in view) slots, strictly ascending, including every pinned one. Pure: the same
  // view gives the same answer, on every backend and thread count. REQUIRES: n_keep >= pinned slots in view.
  virtual void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) = 0;

  // PolicyNeeds::trims_prompt: called after a whole prompt was read, with or without room in the pot. keeps[i] are the
  // slots of views[i] to keep, strictly ascending, including every pinned one; any number of them, different for each
  // group. Pure.
  virtual void SelectAfterPrompt(std::span<const SlotView> views, std::span<KeepSet> keeps) {}

  // PolicyNeeds::filter_layers: `view` is the last of those layers when a prompt's last row has passed it. The slots
  // whose rows go on, strictly ascending, including every pinned one. Only those of the prompt's pictures are looked
  // at: other rows, and the last one, always go on. Pure. SelectAfterPrompt() follows when they have.
  virtual void SelectRows(const SlotView& view, KeepSet* keep) {}

  // PolicyNeeds::read_every: the slots that steps between two full ones read, strictly ascending. Pure. Slots that are
  // stored later are read too.
  virtual void SelectRead(const SlotView& view, KeepSet* read) {}

  // Selects for all groups of a pot at once: `n_keep` slots on average. Policies whose heads or layers share a budget
  // (spread > 1) override it; sizes may then differ, but the sum over a pool's views may not exceed n_keep for each.
  virtual void SelectAll(std::span<const SlotView> views, int32_t n_keep, std::span<KeepSet> keeps) {
    for (size_t i = 0; i < views.size(); ++i) Select(views[i], n_keep, &keeps[i]);
  }
};

// Options of a policy: base/options.h. No option may be called `profile`.
using PolicyOptions = Options;
using PolicyOptionInfo = OptionInfo;

struct PolicyInfo {
  const char* name;        // = file name
  const char* summary;     // one line for `weir policies`
  const char* paper = "";  // source, or "" for well-known baselines
  std::span<const PolicyOptionInfo> options = {};
  Result<std::unique_ptr<Policy>> (*make)(const PolicyOptions& options);
};

// Every policy of the folder, sorted by name. (Generated.)
std::span<const PolicyInfo* const> AllPolicyInfos();
// nullptr when there is no such policy.
const PolicyInfo* FindPolicy(std::string_view name);

// A parsed "name" or "name:key=value,key=value". The key `profile` names a file of options (policy/profile.h); options
// in the text override the file's, in any order.
struct PolicySpec {
  const PolicyInfo* info = nullptr;
  PolicyOptions options;
  std::string text;             // normalised: the name and every option with its effective value; no `profile`
  std::set<std::string> given;  // options that are in the text, not in a profile
  std::string profile;          // file; empty: none
  std::string profile_model;    // what the profile was tuned with
  int32_t profile_pot = 0;
  Result<std::unique_ptr<Policy>> Make() const { return info->make(options); }
};
// Whether a text may name a profile. kRefused for untrusted texts: no file is opened.
enum class Profiles { kRead, kRefused };
// kNotFound for an unknown policy (lists the known ones) or profile; kInvalidArgument for unknown keys, bad or
// out-of-range values, and a profile that is not allowed or is for another policy; other profile errors as
// ReadProfile().
Result<PolicySpec> ParsePolicySpec(std::string_view text, Profiles profiles = Profiles::kRead);
// The same policy with one option changed; `value` as it would be written in the text. Errors as above.
Result<PolicySpec> WithOption(const PolicySpec& spec, std::string_view key, std::string_view value);
// One option's effective value as it would be written in the text. REQUIRES: an option of spec.info.
std::string OptionText(const PolicySpec& spec, const PolicyOptionInfo& option);

// Building block of position-based policies: keeps all pinned slots, then the newest one, then the first n_head slots,
// then the newest ones until n_keep are kept. n_head = 0: the newest only. Ascending.
void KeepHeadAndTail(std::span<const SlotMeta> slots, int32_t n_head, int32_t n_keep, KeepSet* keep);

}  // namespace weir
