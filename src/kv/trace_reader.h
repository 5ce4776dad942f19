// SPDX-License-Identifier: Apache-2.0
// Reads a trace (kv/trace.h): one selection of one group at a time, with its tokens.
//
// The file is untrusted input. The reader keeps every token's id, time and pin, the text of every id, and each group's
// contents as runs of seqs; all of it is bounded by the size of the file. Lines above 256 MiB are rejected.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kv/types.h"

namespace weir {

// Consecutive seqs (or slots): first, first + 1 ... first + count - 1.
struct SeqRun {
  int64_t first = 0, count = 0;
};

struct TraceHead {
  std::string model, policy;
  PotShape pot;             // layers, heads, slots, spread, granularity
  bool all_scores = false;  // scores and NLLs cover all slots, not only the dropped ones
};

struct TraceToken {
  int32_t id = -1;
  bool pinned = false;
  Modality modality = Modality::kText;
  int64_t t_src_ms = 0;
};

// One group at one selection.
struct TraceStep {
  int64_t step = 0, n_seen = 0;
  int32_t group = 0, layer = -1, head = -1;
  int64_t n_slots = 0, n_keep = 0;
  std::string reason;
  std::vector<SeqRun> before;   // contents of the group, slot order: slot 0 is the first seq of the first run
  std::vector<SeqRun> dropped;  // dropped slots, ascending
  std::vector<float> scores,
      nll;  // per slot (TraceHead::all_scores) or per dropped slot; NaN where not finite; or empty
};

// Where a token attended in one layer.
struct TraceAttention {
  int64_t seq = 0;  // the token
  int32_t layer = 0;
  std::vector<SeqRun> slots;  // contents of the layer, slot order; the token itself last
  std::vector<float> scores;  // per slot; NaN where not finite
};

struct TraceCounters {
  int64_t seen = 0, kept = 0, dropped = 0, selections = 0;
};

class TraceReader {
 public:
  // kIo for a file that cannot be read, kCorrupt for one that is not a trace.
  static Result<std::unique_ptr<TraceReader>> Open(const std::string& path);
  ~TraceReader();
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  const TraceHead& head() const { return head_; }

  // The next selection, or false at the end of the file. kCorrupt names the line.
  Result<bool> Next(TraceStep* step);

  // Called with each attention line that Next() reads before a selection or the end.
  void OnAttention(std::function<void(const TraceAttention&)> visit) { on_attention_ = std::move(visit); }

  // State after the latest selection; after Next() returned false, at the end.
  int64_t n_restarts() const { return n_restarts_; }  // this also forgets earlier selections
  int64_t n_tokens() const { return static_cast<int64_t>(tokens_.size()); }
  // Tokens of the stream, indexed by seq.
  const std::vector<TraceToken>& tokens() const { return tokens_; }
  // Contents of a group: ascending runs of seqs. REQUIRES: 0 <= group < head().pot.n_groups().
  std::vector<SeqRun> held(int32_t group) const;
  // Bytes of a token's text; nullptr if the file does not have it.
  const std::string* piece(int32_t id) const;
  // The last line; empty when the session did not close the trace.
  const std::optional<TraceCounters>& counters() const { return counters_; }

 private:
  struct Group {
    std::vector<SeqRun> kept;
    int64_t next = 0;  // tokens from here on came after the group's latest selection
  };
  struct Line;

  TraceReader() = default;
  Result<bool> ReadLine();
  Status Bad(const char* what) const;
  Status Head(const Line& line);
  Status Tokens(const Line& line);
  Status Select(const Line& line, TraceStep* step);
  Status Attention(const Line& line);
  Status End(const Line& line);

  std::string path_, text_, buffer_;
  size_t at_ = 0;
  std::FILE* file_ = nullptr;
  int64_t n_lines_ = 0, n_restarts_ = 0;
  TraceHead head_;
  std::vector<TraceToken> tokens_;
  std::vector<Group> groups_;
  std::unordered_map<int32_t, std::string> pieces_;
  std::optional<TraceCounters> counters_;
  std::function<void(const TraceAttention&)> on_attention_;
};

}  // namespace weir
