// Steps of an answer that read a part of the pot: between two that read all of it, a policy may have the tokens of an
// answer to something with pictures read only the slots that it chose (PolicyNeeds::read_every).
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

  // What the rows of a chunk read, as BatchItem::reads: nullptr for all slots.
  const KeepSet* Begin(const Chunk& chunk);
  // It was read.
  void End(const BatchItem& item);

  // Tokens of the answer since one read all slots: saved with a session.
  int32_t n_since_full() const { return n_since_full_; }
  // Of a stream of which so much is known.
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
