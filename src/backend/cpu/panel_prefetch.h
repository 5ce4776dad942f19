// SPDX-License-Identifier: Apache-2.0
// Prefetches packed codes and scales for passes of a few rows, whose weights come from memory.
#pragma once

#include <cstdint>

#include "backend/cpu/coded_weights.h"
#include "hwy/base.h"

namespace weir::cpu {

// For panels of a layout, n_streams of them read side by side and then the next n_streams.
//
// Lines are fetched into the second cache: on their way to the first they hold one of its few miss buffers for as long
// as memory takes, and reading and computing no longer overlap. At the end of its panel a stream goes on with the panel
// that follows: else the first blocks of every panel, a quarter of one that is 1,024 long, would come late.
template <PackLayout kLayout>
class PanelPrefetch {
 public:
  PanelPrefetch(int64_t n_blocks, int64_t panel_bytes, int64_t n_streams)
      : n_blocks_(n_blocks),
        next_(n_streams * panel_bytes),
        codes_skip_(next_ - n_blocks * kLayout.code_bytes()),
        scales_skip_(next_ - n_blocks * kScaleBytes) {}

  // `codes`: block b of a panel; `scales`: the first of the same panel.
  HWY_INLINE void Fetch(const uint8_t* codes, const uint8_t* scales, int64_t b) const {
    const bool next = b + kBlocks >= n_blocks_;
    codes += kBlocks * kLayout.code_bytes() + (next ? codes_skip_ : 0);
    for (int64_t line = 0; line < kLayout.code_bytes(); line += 64) FetchLine(codes + line);
    if (b * kScaleBytes / 64 == (b + 1) * kScaleBytes / 64) return;  // a line has those of several blocks
    FetchLine(scales + (b + kBlocks) * kScaleBytes + (next ? scales_skip_ : 0));
  }

  // The same block of the stream's next panel: what the first of several tiles of a panel's rows fetches.
  HWY_INLINE void FetchNext(const uint8_t* codes, const uint8_t* scales, int64_t b) const {
    for (int64_t line = 0; line < kLayout.code_bytes(); line += 64) FetchLine(codes + next_ + line);
    if (b * kScaleBytes / 64 == (b + 1) * kScaleBytes / 64) return;
    FetchLine(scales + b * kScaleBytes + next_);
  }

 private:
  static constexpr int64_t kBlocks = 2048 / kLayout.code_bytes();
  static constexpr int64_t kScaleBytes = kLayout.scale_bytes(kSuperBlocks) / kSuperBlocks;  // a block's, on average

  static HWY_INLINE void FetchLine(const uint8_t* at) { __builtin_prefetch(at, 0, 2); }

  int64_t n_blocks_, next_, codes_skip_, scales_skip_;
};

}  // namespace weir::cpu
