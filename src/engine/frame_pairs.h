// SPDX-License-Identifier: Apache-2.0
// Frames of one stream that are read two at a time (vision/encoder.h: FramePairing): the first of two waits here, as it
// was prepared for the encoder; the next one completes the pair, whose rows the session reads at once.
//
// A pair is one frame of the stream: its rows have the time of its newer frame, and are pinned if one of them is to be.
// A frame that must not wait any longer, and the last one of an odd number, is read as both frames of its pair. So is a
// frame that another size follows.
//
// If the pairs of a video stand together, the video is open from its first pair on, and further pairs continue it; a
// pair of another size begins a new one. So does a pair before which the session read anything else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "engine/picture_encoder.h"
#include "engine/session.h"
#include "vision/encoder.h"
#include "vision/frame_memory.h"

namespace weir {

// Times of saved frames are at most as far from 0: their differences do not overflow.
inline constexpr int64_t kMostFrameMs = int64_t{1} << 60;

class FramePairs {
 public:
  // Memory of the frame that waits; 0 for an encoder that reads frames one at a time.
  static int64_t Bytes(const Encoder& encoder);
  // `memory`: Bytes() bytes, which the caller keeps as long as it and the encoder.
  FramePairs(const Encoder& encoder, float* memory) : config_(encoder.config()), frame_(memory) {}

  // Takes a frame, given as a picture or as the output of PictureEncoder::Prepare(). append.t_src_ms is its time.
  // Errors of PictureEncoder::Encode(), after which the frame was not taken and an earlier one still waits, and of
  // Session::AppendEmbeddings(), after which what was read stays read.
  Status Take(PictureEncoder& pictures, const RgbView& frame, Session& session, const Session::AppendOptions& append);
  Status TakePrepared(PictureEncoder& pictures, const float* frame, Session& session,
                      const Session::AppendOptions& append);
  // Reads the frame that waits, if one does, without another one.
  Status Settle(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append);
  // The same; then the words that end a video, if one is open.
  Status Close(PictureEncoder& pictures, Session& session, const Session::AppendOptions& append);

  // Whether Close() would read anything.
  bool fresh() const { return state_.waits != 0 || state_.open != 0; }
  // The time that words before a pair count from. Forget() sets it to 0.
  void BeginAt(int64_t t_ms) { state_.begin_ms = t_ms; }
  void Forget() { state_ = {}; }

  // Nothing is kept: later results do not depend on earlier frames.
  bool empty() const { return !fresh() && state_.begin_ms == 0; }
  // As those of FrameMemory.
  int64_t state_bytes() const;
  Status Save(ByteSink& sink) const;
  Status Check(ByteSource& source) const;
  Status Restore(ByteSource& source);
  void CopyFrom(const FramePairs& other);

 private:
  // Saved as it is; no padding.
  struct State {
    int64_t begin_ms = 0;  // where the video's clock begins
    int64_t waits_ms = 0;  // time of the frame that waits
    // Of the video that is open: the time of its first frame, the last pair's place on the time axis, without and with
    // the bound on its steps, how many positions the video takes, tokens of the stream after it.
    int64_t first_ms = 0, moment = 0, time = 0, extent = 0, n_seen = 0;
    int32_t waits = 0, open = 0;      // 0 or 1
    int32_t width = 0, height = 0;    // of the frame that waits, in pixels
    int32_t n_rows = 0, columns = 0;  // of the last pair
    int32_t pinned = 0;               // whether the frame that waits is to be pinned: 0 or 1
    int32_t reserved = 0;
  };
  PictureSize waiting_size() const { return {state_.width, state_.height}; }
  int64_t n_floats(const State& state) const { return state.waits == 0 ? 0 : int64_t{3} * state.width * state.height; }
  bool IsPossible(const State& state) const;
  void Keep(const float* frame, int64_t t_ms, bool pinned);
  // Reads the frame that waits and `second`, which may be nullptr, as a pair.
  Status Read(PictureEncoder& pictures, const float* second, int64_t second_ms, Session& session,
              const Session::AppendOptions& append);
  // Where a pair of this layout is in the open video; begins a new one for a pair that cannot continue it.
  VideoPlace PlaceOf(const PicturePart& rows, int64_t n_seen);
  std::vector<int32_t> WordsBefore(bool begins, bool was_open, double seconds) const;

  const EncoderConfig& config_;
  float* const frame_;  // [InputFloats()], of which the first 3 * width * height and the size are in use
  State state_;
};

}  // namespace weir
