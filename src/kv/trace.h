// SPDX-License-Identifier: Apache-2.0
// The trace: which tokens were evicted, when, where and why, so that eviction can be inspected, counted and drawn.
//
// JSON lines (one object each; its "type" comes first), small because nothing is repeated:
//
//   {"type":"trace","version":1,"model":"SmolLM2","policy":"h2o:recent=0.5","layers":30,"kv_heads":3,"slots":1024,
//    "spread":1,"granularity":"per_head","positions":"cache","all_scores":false}
//   {"type":"tokens","seq":0,"ids":[1,504,3],"t_src_ms":[[0,3]],"pinned":[[0,1]],"pieces":{"504":"the","3":[226,128]}}
//   {"type":"select","step":0,"n_seen":1024,"layer":4,"head":2,"n":1024,"keep":768,"reason":"pot full",
//    "drop":[[4,200],260,[300,55]],"score":[0.1,0.02],"nll":[3.1,0.4]}
//   {"type":"attention","n_seen":1030,"layer":4,"score":[0.31,0.0021,0.0004]}
//   {"type":"restart"}
//   {"type":"end","seen":1500,"kept":1204,"dropped":296,"selections":2}
//
// trace   the first line. `slots` is the pot's capacity per head, `spread` the most one head may hold, in multiples.
//         `layers` are those that store keys and values, `kv_heads` the heads of each or, with `layer_kv_heads` (their
//         heads one by one), the most of any.
// tokens  tokens that were read since the previous line, from `seq` (the running number in the stream) on: once each,
//         whatever the number of heads. A token id of -1 is a visual embedding. `t_src_ms` is a list of [value, count];
//         `pinned`, `image` and `video` (each omitted when empty) are lists of [place in ids, count]; tokens in
//         neither of the last two are text. `pieces`: the text of ids that are new to the file, an array of bytes
//         where the text is not UTF-8 by itself.
// select  one group at one selection: `n` slots before it, `keep` after it, and the dropped slots. layer and head are
//         -1 if one decision covers all of them. `drop` lists slots, ascending: a number, or [first, count]. `score`
//         and `nll` are present if the policy declared them: one value per dropped slot, in order, or one per slot
//         of the group when the head line says all_scores. Values that are not finite are null.
// attention (only with attention_rows) where the newest token, n_seen - 1, attended in a layer: one value per slot of
//         the layer's group, mean over the layer's query heads. Written at ends of prompts and for tokens of answers.
// restart the session was emptied: seq and step count from 0 again, and every group is empty.
// end     the counters. A file without it was not closed.
//
// Every group holds, in slot order, the slots kept at its last selection and all tokens since. The seq, time, token and
// text of a dropped slot, and the contents at any moment, therefore follow from earlier lines (TraceReader).
//
// Lines go to FILE.part, which becomes FILE when Close() succeeds: a full disk or a kill never leaves a half-written
// FILE. If FILE exists and is not a regular file (a pipe, /dev/stderr), lines are written to it directly.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/attend.h"
#include "kv/store.h"
#include "kv/types.h"

namespace weir {

// The contents of the head line, and the spelling of tokens.
struct TraceInfo {
  std::string model;
  std::string policy;  // with the effective value of every option
  PotShape pot;
  bool all_scores = false;     // also scores and NLLs of kept slots: the data of attention patterns. Much larger.
  int64_t attention_rows = 0;  // attention of at most this many tokens, all layers of each; 0: none
  std::function<std::string(int32_t)> piece;  // the bytes of a token; without it only ids are written
};

// One group at one selection. Spans have one entry per slot, or none if not declared.
struct TraceSelection {
  int64_t step = 0, n_seen = 0;  // running number of the selection; tokens of the stream so far
  const char* policy = "";
  int32_t layer = -1, head = -1;  // -1: all
  std::span<const SlotMeta> slots;
  std::span<const float> scores, nll;
  const KeepSet* keep = nullptr;
  const char* reason = "";
};

class TraceWriter {
 public:
  // kIo with the path when the file cannot be created, also for directories.
  static Result<std::unique_ptr<TraceWriter>> Open(const std::string& path, TraceInfo info = {});
  ~TraceWriter();  // without Close(): removes FILE.part
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // One group of a selection; call it for every group of a selection, in any order, starting with the session's first
  // selection. kIo when the disk is full; the writer is then closed and its part file removed.
  Status Selected(const TraceSelection& selection);

  // Writes where the newest token of `pot` attended. REQUIRES: a pot whose heads share the slots of their layer.
  Status Attended(const Pot& pot, int64_t n_seen, const AttentionWatch& watch);
  // Whether Attended() would still write.
  bool WantsAttention() const { return file_ != nullptr && n_attended_ < info_.attention_rows; }

  // The session was reset. Without this call the next selection detects it, and tokens in between are missing from the
  // trace.
  Status Restarted();

  // Ends the file with the counters and with the tokens in `pot` that no line has named yet. Without a pot the newest
  // tokens are missing.
  Status Close(const Pot& pot, int64_t n_seen);
  Status Close();

 private:
  TraceWriter() = default;
  Status Fail();
  Status Write();  // writes line_ and a newline
  // Writes token lines for tokens that no line has named yet.
  Status Announce(std::span<const SlotMeta> slots);
  void AddPieces(std::span<const SlotMeta> slots);
  // "key":[[place, count], ...] of the slots for which `is` is true; nothing if there are none.
  void AddRuns(const char* key, std::span<const SlotMeta> slots, bool (*is)(const SlotMeta&));
  bool Restarts(const TraceSelection& selection) const;
  Status Finish();
  void RemovePart();

  TraceInfo info_;
  std::string path_;
  std::string part_;  // where lines go until Close(); empty when they go to path_ directly
  std::FILE* file_ = nullptr;
  std::string line_;
  std::vector<bool> spelled_;  // [token id]: its piece is in the file
  int64_t n_announced_ = 0;    // tokens of the stream named so far: the next one's seq
  int64_t n_selections_ = 0, n_attended_ = 0;
  TraceSelection first_;  // of the latest selection, its first group; without spans
};

}  // namespace weir
