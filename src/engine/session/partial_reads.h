// SPDX-License-Identifier: Apache-2.0
// Steps that read a part of the pot. While an answer about pictures is written, a policy may let all but every K-th
// token read only slots that it chose (PolicyNeeds::read_every).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/buffer_space.h"
#include "engine/session/core.h"
#include "engine/session/selector.h"

namespace weir {

class PartialReads {
 public:
  // Both outlive it.
  PartialReads(SessionCore* core, Selector* selector) : core_(*core), selector_(*selector) {}

  // Bytes of the lists.
  static void LayOut(const PotShape& pot, const PolicyNeeds& needs, BufferSpace* space);
  // Takes them. The pot is there.
  void Prepare();

  // What the rows of a chunk read, as BatchItem::reads has it: nullptr for all slots.
  const KeepSet* Begin(const Chunk& chunk);
  // The chunk was read.
  void End(const BatchItem& item);

  // Tokens of the answer since one read all slots: saved with a session.
  int32_t n_since_full() const { return n_since_full_; }
  // Continues a stream that has this count; what it read last is not known.
  void Start(int32_t n_since_full) {
    n_since_full_ = n_since_full;
    fresh_at_ = -1;
  }

 private:
  SessionCore& core_;
  Selector& selector_;
  std::vector<KeepSet> reads_;  // [n_groups], empty where every step reads all
  int64_t fresh_at_ = -1;       // where reads_ is what the last row read: the selections by then
  int32_t n_since_full_ = 0;
};

}  // namespace weir
