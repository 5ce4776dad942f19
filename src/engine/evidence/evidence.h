// SPDX-License-Identifier: Apache-2.0
// A kind of evidence: what a session collects for every slot in addition to its metadata, for the policy that declared
// it (kv/evidence.h).
//
// Adding one is adding one file src/engine/evidence/my_kind.cc whose first line is `// weir-plugin: evidence` and which
// defines `extern const EvidenceInfo kMyKind` (docs/recipes/add-a-kind-of-evidence.md). The folder is the list. A kind
// declares what it needs from the rest of the session, lays out its memory, collects its numbers and shows them to the
// policy. A session iterates over the kinds that its policy requested and knows none of them by name.
//
// Numbers that must outlive a selection are stored with the pot's slots (SlotFloat), which moves and saves them.
// Numbers that are recomputed before every selection are stored in memory of the kind. Objects of a kind hold nothing
// else, so a session only has to save the pot and its EvidenceMemo.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/buffer_space.h"
#include "engine/runner.h"
#include "engine/session/core.h"
#include "policy/policy.h"

namespace weir {

// What a kind needs from its session.
struct EvidenceDemand {
  SlotFloats floats;       // to be stored with the pot's slots
  bool attention = false;  // rows vote: forward passes carry evidence calls (RunnerShape::statistics)
  Normaliser likelihoods = Normaliser::kNone;  // -log P of every token read (RunnerShape::nll)
  int32_t probe_slots = 0;                     // slots of the pot kept free for rows that are read and removed again
};

class EvidenceKind {
 public:
  virtual ~EvidenceKind() = default;

  virtual EvidenceDemand Demand() const { return {}; }
  // Whether a session can be made with these options; the message of kInvalidArgument says what is missing.
  virtual Status Check(const SessionOptions& /*options*/) const { return Status(); }
  // Lays out the kind's own memory for a pot of this shape. Called with a space that only counts when a session is
  // planned, and with one that allocates when it is made.
  virtual void LayOut(const PotShape& /*pot*/, BufferSpace* /*space*/) {}

  // A chunk is about to be read. The kind may ask the forward pass for attention (BatchItem::evidence); what `item`
  // then refers to must live until the next call.
  virtual void BeginChunk(const SessionCore& /*core*/, const Chunk& /*chunk*/, BatchItem* /*item*/) {}
  // The chunk was read; its slots are the pot's newest. nll: [chunk.n], empty if likelihoods were not requested.
  virtual void EndChunk(SessionCore& /*core*/, const Chunk& /*chunk*/, std::span<const float> /*nll*/) {}

  // A round begins with this question, which may not have been read yet.
  virtual void BeginRound(SessionCore& /*core*/, std::span<const int32_t> /*question*/) {}
  // Called after room was made for the round, unless the stream begins with it. True if it changed floats in the pot,
  // which then differ from those of a stream without rounds.
  virtual bool Age(SessionCore& /*core*/) { return false; }

  // A selection follows. Collects what the policy will rank by. Numbers that are not stored with the slots go into the
  // views, one per group, whose `slots` are already set. Backend operations may still be running when it returns.
  virtual Status Take(SessionCore& /*core*/, std::span<SlotView> /*views*/) { return Status(); }
  // Puts the numbers stored with the slots into the view of view->group.
  virtual void Show(const SessionCore& /*core*/, SlotView* /*view*/) const {}

  // For Session::RewindPoint(): the maximum number of tokens to keep, for a prompt that ends at n_call, such that the
  // floats stored with the slots equal those of reading the whole prompt.
  virtual int64_t MostRewound(int64_t /*n_call*/) const { return std::numeric_limits<int64_t>::max(); }
};

// The inputs of a kind: the policy's declaration and the session's options.
struct EvidenceInfo {
  const char* name;  // = file name
  // nullptr if the policy did not request it.
  std::unique_ptr<EvidenceKind> (*make)(const PolicyNeeds& needs, const SessionOptions& options);
};

// SlotView::row_attention of a view that has scores and n_rows.
float RowAttention(const SessionCore& core, const SlotView& view);

// Every kind of the folder, sorted by name. (Generated.)
std::span<const EvidenceInfo* const> AllEvidenceInfos();

// The kinds that one session collects. The functions are those of EvidenceKind, for all kinds together.
class EvidenceSet {
 public:
  EvidenceSet() = default;
  EvidenceSet(const PolicyNeeds& needs, const SessionOptions& options);

  const EvidenceDemand& demand() const { return demand_; }
  Status Check(const SessionOptions& options) const;
  void LayOut(const PotShape& pot, BufferSpace* space);
  void BeginChunk(const SessionCore& core, const Chunk& chunk, BatchItem* item);
  void EndChunk(SessionCore& core, const Chunk& chunk, const BatchItem& item, std::span<const float> nll);
  void BeginRound(SessionCore& core, std::span<const int32_t> question);
  bool Age(SessionCore& core);
  Status Take(SessionCore& core, std::span<SlotView> views);
  void Show(const SessionCore& core, SlotView* view) const;
  int64_t MostRewound(int64_t n_call) const;

  // Bookkeeping common to all kinds. The stream restarts.
  void Clear(SessionCore& core);
  // Only the n oldest tokens of the pot are left.
  void Rewound(SessionCore& core, int32_t n);
  // A selection kept at most `most` slots of a group.
  void Selected(SessionCore& core, int32_t most);

 private:
  std::vector<std::unique_ptr<EvidenceKind>> kinds_;
  EvidenceDemand demand_;
};

}  // namespace weir
