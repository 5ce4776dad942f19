// SPDX-License-Identifier: Apache-2.0
// Tracks how many of the tokens read so far another prompt with the same prefix may keep (Session::RewindPoint()).
//
// Rows of one chunk are computed together, and their bits may differ from those of the same rows in other chunks or one
// at a time. So only chunks are kept that a new prompt would be read in too: whole chunks, starting at the end of the
// pinned tokens. A chunk whose rows vote uses a different forward pass, and whether rows vote depends on where the
// prompt ends; so only pinned chunks, whose end is the same, may vote.
#pragma once

#include <cstdint>

#include "engine/evidence/evidence.h"
#include "engine/session/core.h"

namespace weir {

class RewindMark {
 public:
  // Starts with a stream of which exactly the first n tokens were read.
  void Start(int64_t n) {
    plain_ = true;
    n_ = n;
  }
  // The session no longer holds what another reader of the same prompt would hold.
  void Forbid() {
    plain_ = false;
    n_ = 0;
  }
  // Call before a chunk is read: marks what of the pot cannot un-read, to which a rewound session returns.
  void Before(const SessionCore& core, const Chunk& chunk, bool has_logits) const;
  // Call after a chunk was read, before it is counted in `core`.
  void Note(const SessionCore& core, const Chunk& chunk, const BatchItem& item, bool has_logits);

  // As Session::RewindPoint().
  int64_t Point(const SessionCore& core, const EvidenceSet& evidence, int64_t n_same, int64_t n_call) const;
  // Upper bound of every Point().
  int64_t n() const { return n_; }

 private:
  // Whether a chunk may follow the tokens read so far in any prompt that has them.
  bool IsPlain(const Chunk& chunk, bool has_logits) const {
    // A likelihood from existing logits has different bits.
    return plain_ && chunk.tokens != nullptr && !chunk.generated && !chunk.observed && !has_logits;
  }

  bool plain_ = true;  // any prompt of the same tokens would be read in the same chunks so far
  int64_t n_ = 0;      // start of the last chunk that has only such chunks before it
};

}  // namespace weir
