// Eviction policies: who stays when a pot is full.
//
// Adding one is adding one file src/policy/my_policy.cc whose first line is `// weir-plugin: policy` and which defines
// `extern const PolicyInfo kMyPolicy` (docs/recipes/add-a-policy.md). The folder is the list: the build writes the table
// that AllPolicyInfos() returns.
//
// A policy sees metadata, never tensors, models or the store. It returns a keep-set; the engine compacts, renumbers and
// traces. Budgets are counts of slots, never ratios.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kv/types.h"

namespace weir {

// What a policy declares before the pot is made. What is not declared is not collected and costs nothing.
struct PolicyNeeds {
  Positions positions = Positions::kCache;
  Granularity granularity = Granularity::kGlobal;
  int32_t min_slots = 1;   // smallest pot that leaves room for one new token; pinned slots come on top
  bool evicts = true;      // false: a full pot is an error and the engine never calls Select()
};

// One metadata group's used slots at the moment of a selection.
struct SlotView {
  int32_t group = 0;
  std::span<const SlotMeta> slots;   // slot order: oldest first
};

// One object per session: small state, no locks.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual PolicyNeeds Needs() const = 0;

  // The pot holds n_slots slots per head and `n_coming` new tokens need room. How many may stay?
  // Result in [0, n_slots - n_coming]; may be smaller, so that selections come in fewer, larger steps.
  virtual int32_t TargetSlots(int32_t n_slots, int32_t n_coming) const { return n_slots - n_coming; }

  // Chooses exactly min(n_keep, slots in view) slots, strictly ascending, every pinned one included. Pure: same view,
  // same answer, on every backend and thread count. REQUIRES: n_keep >= pinned slots in view.
  virtual void Select(const SlotView& view, int32_t n_keep, KeepSet* keep) = 0;
};

// Options of a policy as the user wrote them, "key=value" pairs, already checked against PolicyInfo::options.
class PolicyOptions {
 public:
  PolicyOptions() = default;
  explicit PolicyOptions(std::map<std::string, double> values) : values_(std::move(values)) {}
  double Number(std::string_view key) const { return values_.find(std::string(key))->second; }
  int32_t Int(std::string_view key) const { return static_cast<int32_t>(Number(key)); }

 private:
  std::map<std::string, double> values_;
};

struct PolicyOptionInfo {
  const char* key;
  double fallback;
  double min, max;
  bool integral;
  const char* help;
};

struct PolicyInfo {
  const char* name;      // = file name
  const char* summary;   // one line for `weir policies`
  const char* paper;     // source, or "" for baselines of common knowledge
  std::span<const PolicyOptionInfo> options;
  Result<std::unique_ptr<Policy>> (*make)(const PolicyOptions& options);
};

// Every policy of the folder, sorted by name. (Generated.)
std::span<const PolicyInfo* const> AllPolicyInfos();
// nullptr when there is none of that name.
const PolicyInfo* FindPolicy(std::string_view name);

// A parsed "name" or "name:key=value,key=value".
struct PolicySpec {
  const PolicyInfo* info = nullptr;
  PolicyOptions options;
  std::string text;   // normalised: the name and every option with its effective value
  Result<std::unique_ptr<Policy>> Make() const { return info->make(options); }
};
// kNotFound for an unknown policy (with the list of known ones), kInvalidArgument for unknown keys, bad or out-of-range
// values.
Result<PolicySpec> ParsePolicySpec(std::string_view text);

// Building block of position-based policies: keeps all pinned slots, then the first n_head slots, then the newest ones
// until n_keep are kept. Ascending.
void KeepHeadAndTail(std::span<const SlotMeta> slots, int32_t n_head, int32_t n_keep, KeepSet* keep);

}  // namespace weir
