// SPDX-License-Identifier: Apache-2.0
// Rows of a prompt that wait behind its first layers (PolicyNeeds::filter_layers). A picture, and what follows it in
// the prompt, is read through those layers only; what leaves them is held here. When the prompt's last row has passed
// them, the policy says which rows go on, and only these are computed and stored in the layers behind
// (docs/decisions/0038-rows-wait-for-their-prompt.md).
//
// Waiting rows have slots in every layer; behind the first ones these hold nothing yet. So Finish() must be called
// before anything reads them, and before a selection. It lets every row go on unless the prompt has ended.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/buffer_space.h"
#include "engine/session/core.h"
#include "engine/session/prediction.h"
#include "engine/session/slot_selector.h"
#include "kv/attend.h"

namespace weir {

class LateRows {
 public:
  // Whether rows ever wait in a session like this: the model's layers hold nothing but keys and values of what they
  // were shown, and the policy may forget.
  static bool Suits(const Model& model, const PolicyNeeds& needs, const SessionOptions& options);
  // Lays out its memory: as many rows as the plan says (SessionPlan::late_rows), or nothing.
  void LayOut(const Model& model, const SessionPlan& plan, BufferSpace* space);
  // All must outlive it.
  void Use(SessionCore* core, SlotSelector* selector, Prediction* prediction);

  int64_t n() const { return n_; }  // rows that wait
  // Whether the rows of a call wait: a picture's, or what follows some that do. Not for whoever reads keys and values,
  // or every tensor, as they come.
  bool Takes(const Chunk& call) const;
  bool HasRoom(int64_t n_rows) const { return n_ + n_rows <= most_ && chunks_.size() < kMostChunks; }
  // Reads a chunk through the first layers. Returns what leaves them. REQUIRES: Takes(), HasRoom(), and
  // ChunkReader::Begin() returned `item`.
  Result<const float*> Read(const BatchItem& item);
  // Lets rows go on: all, or if the prompt has ended those that the policy chose. `watch`: as BatchItem::watch, of the
  // last row.
  Status Finish(bool prompt_ended, const AttentionWatch* watch = nullptr);
  // Forgets them: the stream is another one.
  void Drop() {
    n_ = 0;
    chunks_.clear();
  }

 private:
  static constexpr size_t kMostChunks = 64;
  // Rows that were read together, or one after another without a vote.
  struct Waiting {
    int64_t begin = 0, end = 0;  // among those that wait
    bool votes = false;
    EvidenceCall call;  // its rows relative to `begin`
  };
  // How many of picked_[at, ...) the next pass reads; `call` receives the vote of those, or no rows.
  size_t NextPass(size_t at, EvidenceCall* call) const;

  SessionCore* core_ = nullptr;
  SlotSelector* selector_ = nullptr;
  Prediction* prediction_ = nullptr;
  int64_t most_ = 0, n_ = 0;
  float* stream_ = nullptr;  // [most, n_embd]: what left the first layers
  std::vector<Waiting> chunks_;
  std::vector<int32_t> picked_;  // of the rows that wait, those that go on
};

}  // namespace weir
