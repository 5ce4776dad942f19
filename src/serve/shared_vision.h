// SPDX-License-Identifier: Apache-2.0
// The vision resources that all sessions of a server share: one encoder, decode lanes, and counters.
//
// The frames that a session keeps are its own (engine/frame_store.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/ledger.h"
#include "base/status.h"
#include "engine/picture_encoder.h"
#include "serve/decode_lanes.h"

namespace weir {

// Totals of all sessions. Any thread.
struct VisionCounts {
  std::atomic<int64_t> pictures_read{0}, frames_read{0};
  std::atomic<int64_t> frames_arrived{0}, frames_dropped{0};  // of live videos
};

struct SharedVision {
  // Bytes that Make() reserves under kVision. Errors of PictureEncoder::PrunerBytes().
  static Result<int64_t> Bytes(const Encoder& encoder, const PrunerSpec& prune, const DecodeOptions& decode);
  // kOverBudget, errors of Bytes(). `encoder` and `ledger` must outlive it.
  static Result<std::unique_ptr<SharedVision>> Make(Encoder& encoder, const PrunerSpec& prune,
                                                    const DecodeOptions& decode, Ledger& ledger);

  std::unique_ptr<PictureEncoder> encoder;  // [engine], except Prepare() and immutable members
  std::unique_ptr<DecodeLanes> lanes;
  VisionCounts counts;
};

}  // namespace weir
