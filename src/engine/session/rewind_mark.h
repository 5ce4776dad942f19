// SPDX-License-Identifier: Apache-2.0
// How many of the tokens read so far another prompt with the same beginning may keep (Session::RewindPoint()).
//
// Rows of one chunk are computed together, and on no device need their bits be those of rows that come in other chunks,
// or one by one. So what is kept are chunks that a new prompt would come in too: whole ones, from where the pinned
// tokens end. A chunk whose rows vote takes another forward pass, and whether it does follows the prompt's end; only
// pinned ones, whose end is the same, may.
#pragma once

#include <cstdint>

#include "engine/evidence/evidence.h"
#include "engine/session/core.h"

namespace weir {

class RewindMark {
 public:
  // A stream of which exactly the first n tokens were read.
  void Start(int64_t n) {
    plain_ = true;
    n_ = n;
  }
  // What was read is no longer what another reader of the same prompt would hold.
  void Forbid() {
    plain_ = false;
    n_ = 0;
  }
  // A chunk was read and is not counted in `core` yet.
  void Note(const SessionCore& core, const Chunk& chunk, const BatchItem& item, bool has_logits);

  // As Session::RewindPoint() has it.
  int64_t Point(const SessionCore& core, const EvidenceSet& evidence, int64_t n_same, int64_t n_call) const;
  // No Point() is beyond it.
  int64_t n() const { return n_; }

 private:
  bool plain_ = true;  // all chunks so far are those that any prompt of the same tokens is read in
  int64_t n_ = 0;      // where the last chunk began that has only such chunks before it
};

}  // namespace weir
