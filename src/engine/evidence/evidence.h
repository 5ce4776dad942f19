// SPDX-License-Identifier: Apache-2.0
// A kind of evidence: what a session learns of every slot beside its metadata, for the policy that declared it
// (kv/evidence.h).
//
// Adding one is adding one file src/engine/evidence/my_kind.cc whose first line is `// weir-plugin: evidence` and which
// defines `extern const EvidenceInfo kMyKind` (docs/recipes/add-a-kind-of-evidence.md). The folder is the list. A kind
// says there what it needs of the rest of the session, lays out its memory, takes its numbers and shows them to the
// policy; a session walks over the kinds that its policy asked for and knows none of them.
//
// Numbers that must outlive a selection lie beside the pot's slots (SlotFloat), which moves and saves them. What is
// taken anew before every selection lies in memory of the kind. Objects of a kind hold nothing else, so that a saved
// pot and its EvidenceMemo are all that a session has to save.
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

// What a kind needs of the session around it.
struct EvidenceDemand {
  SlotFloats floats;         // to be kept beside the pot's slots
  bool attention = false;    // rows will vote: forward passes carry evidence calls (RunnerShape::statistics)
  bool likelihoods = false;  // -log P of every token read (RunnerShape::nll)
  int32_t probe_slots = 0;   // of the pot, kept free for rows that are read and taken back
};

class EvidenceKind {
 public:
  virtual ~EvidenceKind() = default;

  virtual EvidenceDemand Demand() const { return {}; }
  // Whether a session can be made with these options; kInvalidArgument says what it lacks.
  virtual Status Check(const SessionOptions& /*options*/) const { return Status(); }
  // Takes the kind's own memory for a pot of this shape. Called with a space that only counts when a session is
  // planned, and with one that gives memory when it is made.
  virtual void LayOut(const PotShape& /*pot*/, BufferSpace* /*space*/) {}

  // A chunk is about to be read. The kind may ask the forward pass for attention (BatchItem::evidence); what `item`
  // then refers to must live until the next call.
  virtual void BeginChunk(const SessionCore& /*core*/, const Chunk& /*chunk*/, BatchItem* /*item*/) {}
  // The chunk was read; its slots are the pot's newest. nll: [chunk.n], empty where nothing asked for likelihoods.
  virtual void EndChunk(SessionCore& /*core*/, const Chunk& /*chunk*/, std::span<const float> /*nll*/) {}

  // A round begins with this question, which may not have been read yet.
  virtual void BeginRound(SessionCore& /*core*/, std::span<const int32_t> /*question*/) {}
  // The same once room was made for the round, unless the stream begins with it. True when this changed floats in the
  // pot, which then differ from those of a stream without rounds.
  virtual bool Age(SessionCore& /*core*/) { return false; }

  // A selection is next. Takes what the policy will rank by. What is not kept beside the slots goes into the views, one
  // a group, whose `slots` are set already. Operations may still run when it returns.
  virtual Status Take(SessionCore& /*core*/, std::span<SlotView> /*views*/) { return Status(); }
  // Puts what is kept beside the slots into the view of view->group.
  virtual void Show(const SessionCore& /*core*/, SlotView* /*view*/) const {}

  // For Session::RewindPoint(): how many tokens at most may stay, for a prompt that ends at n_call, so that the floats
  // beside the slots become those of reading it whole.
  virtual int64_t MostRewound(int64_t /*n_call*/) const { return std::numeric_limits<int64_t>::max(); }
};

// What a kind is made from: the policy's declaration and the options of the session.
struct EvidenceInfo {
  const char* name;  // = file name
  // nullptr where the policy did not ask for it.
  std::unique_ptr<EvidenceKind> (*make)(const PolicyNeeds& needs, const SessionOptions& options);
};

// Every kind of the folder, sorted by name. (Generated.)
std::span<const EvidenceInfo* const> AllEvidenceInfos();

// The kinds that one session collects. Functions as EvidenceKind has them, for all kinds together.
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

  // Bookkeeping common to all kinds. The stream begins anew.
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
