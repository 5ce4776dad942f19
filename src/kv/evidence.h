// Evidence: what a policy may ask to know of every slot, beside its metadata. Declared before the pot is made, collected
// beside inference, kept in the pot as one float per slot and group, moved with the slots when the pot is compacted.
#pragma once

#include <cstdint>

#include "ops/column_scores.h"
#include "ops/vector_scores.h"

namespace weir {

// Which query rows vote.
enum class EvidenceRows {
  kNone,
  kLast,   // the newest rows of the latest chunk (Inf-MLLM, TOVA, SnapKV)
  kAll,    // every row since the slot was stored, summed (H2O)
  kProbe,  // the rows of a probe that is read on top of the pot and taken back before a selection (InfiniPot)
};

struct Evidence {
  EvidenceRows rows = EvidenceRows::kNone;
  int32_t n_last = 1;                            // kLast: so many rows, fewer where the chunk is shorter
  RowReduce row_reduce = RowReduce::kSum;        // a mean is the sum over SlotView::n_rows
  HeadReduce head_reduce = HeadReduce::kMean;    // over a KV head's query heads (kPerHead) or the layer's (kPerLayer)
  VectorScore vector = VectorScore::kNone;       // instead of attention: a statistic of the stored keys or values
  bool nll = false;                              // -log P of every token when it was read
  // kAll, kPerLayer: visual slots hold the attention of the newest voting row alone, in place of a sum (A-VL).
  bool visual_latest = false;
  bool scores() const { return rows != EvidenceRows::kNone || vector != VectorScore::kNone; }
};

}  // namespace weir
