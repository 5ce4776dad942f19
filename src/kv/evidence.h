// SPDX-License-Identifier: Apache-2.0
// Evidence: statistics of every slot that a policy may request, beside its metadata. Declared before the pot is made,
// collected during inference, stored in the pot as one float per slot and group, and moved with the slots when the pot
// is compacted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/types.h"
#include "ops/column_scores.h"
#include "ops/nll.h"
#include "ops/vector_scores.h"

namespace weir {

// Rows vote with Gumbel noise on their scores and a temperature (ops/score_noise.h): `tau` for rows of a prompt, more
// by `tau_step` for each token of an answer, at most `tau_end`. Not in the memory of a device.
struct VoteNoise {
  bool on = false, gumbel = true;
  uint64_t seed = 0;
  float tau = 1, tau_step = 0, tau_end = 1;
};

// Which query rows vote.
enum class EvidenceRows {
  kNone,
  kLast,   // the newest rows of the latest prompt (Inf-MLLM, TOVA, SnapKV), or of the chunk before the pot is full
  kAll,    // every row since the slot was stored, summed (H2O)
  kProbe,  // the rows of a probe, which is read on top of the pot before a selection and removed again (InfiniPot)
};

struct Evidence {
  EvidenceRows rows = EvidenceRows::kNone;
  int32_t n_last = 1;                          // kLast: number of rows; fewer if the prompt is shorter, and up to twice
                                               // as many if its end came in pieces. Below 0: of one call only
  bool with_pictures = false;                  // kLast: no row votes before the stream has contained a picture
  RowReduce row_reduce = RowReduce::kSum;      // a mean is the sum over SlotView::n_rows
  HeadReduce head_reduce = HeadReduce::kMean;  // over a KV head's query heads (kPerHead) or the layer's (kPerLayer)
  VectorScore vector = VectorScore::kNone;     // instead of attention: a statistic of the stored keys or values
  Normaliser nll = Normaliser::kNone;          // -log P of every token when it was read
  VoteNoise noise;                             // of `rows` kLast and kAll
  // kAll, kPerLayer: visual slots hold the attention of the newest voting row alone, instead of a sum (A-VL).
  bool visual_latest = false;
  // If above 0: beside `vector`, how little a visual token's key resembles those at the same place of recent frames
  // (ops/frame_novelty.h). This share of the frames a head holds, rounded down but at least one, is recent.
  double recent_frames = 0;
  // If above 0: once the stream has contained a picture, which scene of the frames that a head holds each visual slot
  // belongs to, and whether it shows what the scene's first frame did (ops/scenes.h). A key has changed if 1 - cos is
  // above this. kPerHead only.
  float scene_change = 0;
  // Beside `rows`, once the stream has contained a picture: this statistic of every slot, recomputed before a selection
  // and not stored (SlotView::visual). kPerHead only.
  VectorScore visual_vector = VectorScore::kNone;
  bool scores() const { return rows != EvidenceRows::kNone || vector != VectorScore::kNone; }
};

// First seqs of the recent frames among a group's slots, ascending: `share` of the frames with visual tokens in it,
// rounded down but at least one; empty when it has none.
inline std::vector<int64_t> RecentFrames(std::span<const SlotMeta> slots, double share) {
  std::vector<int64_t> frames;
  for (const SlotMeta& m : slots) {
    if (m.modality != Modality::kText && (frames.empty() || frames.back() != m.frame())) frames.push_back(m.frame());
  }
  const size_t n = frames.empty() ? 0 : static_cast<size_t>(share * static_cast<double>(frames.size()));
  const size_t n_recent = std::clamp<size_t>(n, std::min<size_t>(1, frames.size()), frames.size());
  frames.erase(frames.begin(), frames.end() - static_cast<std::ptrdiff_t>(n_recent));
  return frames;
}

}  // namespace weir
