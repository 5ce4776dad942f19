// SPDX-License-Identifier: Apache-2.0
// Decode steps that read only part of the pot. While an answer about pictures is generated, a policy may restrict all
// but every K-th token to slots that it chose (PolicyNeeds::read_every).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/buffer_space.h"
#include "engine/session/core.h"
#include "engine/session/slot_selector.h"

namespace weir {

class PartialReads {
 public:
  // Both must outlive it.
  PartialReads(SessionCore* core, SlotSelector* selector) : core_(*core), selector_(*selector) {}

  // Bytes of the lists.
  static void LayOut(const PotShape& pot, const PolicyNeeds& needs, BufferSpace* space);
  // Allocates the lists. The pot must exist.
  void Prepare();

  // The slots that the rows of a chunk read, for BatchItem::reads; nullptr for all slots.
  const KeepSet* Begin(const Chunk& chunk);
  // Call after the chunk was read.
  void End(const BatchItem& item);

  // Tokens of the answer since one read all slots: saved with a session.
  int32_t n_since_full() const { return n_since_full_; }
  // Continues a stream with this count; the slots it read last are unknown.
  void Start(int32_t n_since_full) {
    n_since_full_ = n_since_full;
    fresh_at_ = -1;
  }

 private:
  SessionCore& core_;
  SlotSelector& selector_;
  std::vector<KeepSet> reads_;  // [n_groups], empty where every step reads all
  int64_t fresh_at_ = -1;       // number of selections at which reads_ was what the last row read
  int32_t n_since_full_ = 0;
};

}  // namespace weir
