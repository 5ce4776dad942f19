// SPDX-License-Identifier: Apache-2.0
// Pruners: which rows of a picture the language model sees. Rows that a pruner drops never reach the model: no slot, no
// attention, no feed-forward layer.
//
// To add one, add a file src/prune/my_pruner.cc whose first line is `// weir-plugin: pruner` and which defines `extern
// const PrunerInfo kMyPruner` (docs/recipes/add-a-pruner.md); the build finds it. A pruner sees only signals of the
// encoder (vision/signals.h), not the encoder, the model or a session, and returns one number per row.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/options.h"
#include "base/status.h"
#include "kv/types.h"
#include "vision/signals.h"

namespace weir {

// One object per encoder and session. Signals of a picture arrive between Begin() and Importance().
class Pruner : public SignalSink {
 public:
  // Bytes that Prepare() will allocate for this encoder. kUnsupported when the encoder does not offer the signals that
  // the pruner needs, kInvalidArgument when the options do not fit it.
  virtual Result<int64_t> MemoryBytes(const SignalSource& source) const = 0;
  // Allocates them: all the memory it will ever need. REQUIRES: MemoryBytes(source) is not an error.
  virtual void Prepare(const SignalSource& source) = 0;
  // Begins a picture; forgets the one before.
  virtual void Begin() = 0;
  // One number per row, larger is kept first; valid until the next Begin(). Not finite if a signal was not.
  virtual std::span<const double> Importance() const = 0;
};

struct PrunerInfo {
  const char* name;                          // = file name
  const char* summary;                       // one line for a list
  const char* paper = "";                    // source, or "" for well-known baselines
  std::span<const OptionInfo> options = {};  // beside kKeepOption, which every pruner has
  Result<std::unique_ptr<Pruner>> (*make)(const Options& options);
};

// The share of the rows to keep: rounded half up, at least one.
inline constexpr OptionInfo kKeepOption = {.key = "keep",
                                           .fallback = 0.5,
                                           .min = 0,
                                           .max = 1,
                                           .integral = false,
                                           .help = "share of a picture's rows to keep",
                                           .tune = "0.125|0.25|0.5|0.75"};

// Every pruner of the folder, sorted by name. (Generated.)
std::span<const PrunerInfo* const> AllPrunerInfos();
// nullptr when there is no such pruner.
const PrunerInfo* FindPruner(std::string_view name);

// A parsed "name" or "name:key=value,key=value", as for policies.
struct PrunerSpec {
  const PrunerInfo* info = nullptr;  // nullptr: no pruning
  Options options;
  std::string text;  // normalised: the name and every option with its effective value
  double keep() const { return options.Number("keep"); }
  Result<std::unique_ptr<Pruner>> Make() const { return info->make(options); }
};
// kNotFound for an unknown pruner (lists the known ones), kInvalidArgument for unknown keys and bad values.
Result<PrunerSpec> ParsePrunerSpec(std::string_view text);

// How many of n rows to keep: n * keep, rounded half up, at least one.
int64_t RowsKept(int64_t n_rows, double keep);
// The n_keep rows of the largest importance, ascending; among equals the first ones, NaN last. REQUIRES: n_keep <=
// importance.size().
void KeepMostImportant(std::span<const double> importance, int64_t n_keep, KeepSet* keep);

}  // namespace weir
