// SPDX-License-Identifier: Apache-2.0
// Runs one encoder for a model: turns pictures and frames into rows for a session.
//
// It holds the encoder's working memory and the pruner that drops rows before the language model sees them; without a
// pruner all rows stay. Any number of sessions may share it, one picture at a time, on one thread. Only Prepare() may
// run on other threads meanwhile.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "engine/session.h"
#include "kv/types.h"
#include "prune/pruner.h"
#include "vision/encoder.h"

namespace weir {

class PictureEncoder {
 public:
  // Bytes that Make() reserves for the pruner in addition to ImageEncoder::Bytes(); 0 for a spec without one.
  // kUnsupported if the encoder does not provide what the pruner needs, cuts pictures into tiles or keeps frames
  // together; kInvalidArgument if an option does not fit the encoder.
  static Result<int64_t> PrunerBytes(const PrunerSpec& spec, const Encoder& encoder);
  // Buffers of the encoder and the pruner are reserved in `ledger` under kVision before they are allocated; the memory
  // that depends on a picture's size (PreprocessBytes()) is reserved while that picture is read. Both arguments must
  // outlive the object. Errors of PrunerBytes() and ImageEncoder::Make().
  static Result<std::unique_ptr<PictureEncoder>> Make(const PrunerSpec& spec, Encoder& encoder, Ledger& ledger);

  // The same for a ledger that other users fill up later: room for any picture of up to max_side x max_side pixels is
  // reserved at once. BytesSetAside() returns the bytes.
  static Result<int64_t> BytesSetAside(const PrunerSpec& spec, const Encoder& encoder, int32_t max_side);
  static Result<std::unique_ptr<PictureEncoder>> MakeSetAside(const PrunerSpec& spec, Encoder& encoder,
                                                              int32_t max_side, Ledger& ledger);

  // The picture's remaining rows, [n, n_embd], in order; valid until the next call. Errors of Preprocess(); kCorrupt if
  // the encoder gives the pruner numbers that are not finite.
  Result<std::span<const float>> Encode(const RgbView& image, const VisionObserver* observer = nullptr);
  // The same for a frame of a video, which is one view, and for the output of Prepare().
  Result<std::span<const float>> EncodeFrame(const RgbView& frame, const VisionObserver* observer = nullptr);
  Result<std::span<const float>> EncodePixels(const float* pixels, const VisionObserver* observer = nullptr);

  // The same for two frames of a video as one (ImageEncoder::EncodePair()).
  Result<std::span<const float>> EncodePair(const float* first, const float* second);

  // Reads a picture into a session: its rows, and the words of the model's family between them. Errors of Encode(),
  // Session::Append() and Session::AppendEmbeddings(); what was read before the error stays read.
  Status Read(const RgbView& picture, Modality modality, Session& session, const Session::AppendOptions& append);
  Status ReadPrepared(const float* pixels, Modality modality, Session& session, const Session::AppendOptions& append);

  // The size of a prepared frame in floats, and preparing it; working memory is reserved in `work`. Any thread. Errors
  // of Preprocess().
  int64_t n_prepared() const { return InputFloats(config().transform); }
  Status Prepare(const RgbView& frame, Ledger& work, float* out) const {
    return Preprocess(frame, config().transform, work, out);
  }

  // The last picture's rows, in order, and the words between them.
  std::span<const PicturePart> parts() const { return pruner_ == nullptr ? images_->parts() : parts_; }
  // With a pruner: indices of the encoder's rows that stayed for the last picture, ascending.
  std::span<const int32_t> kept() const { return kept_; }
  // Rows of every picture that is not cut into tiles.
  int32_t n_rows() const { return n_rows_; }
  // Rows pruned so far.
  int64_t n_pruned() const { return n_pruned_; }
  // For frames that are kept together (engine/frame_store.h), which are not pruned.
  ImageEncoder& images() { return *images_; }
  const EncoderConfig& config() const { return images_->config(); }
  // PrunerSpec::info is nullptr: nothing is pruned.
  const PrunerSpec& pruner() const { return spec_; }

 private:
  PictureEncoder() = default;
  // The sink for the next picture's attention: the pruner, or nullptr if there is nothing to choose.
  SignalSink* BeginPicture();
  // Moves the rows that stay to the front.
  Result<std::span<const float>> Thin(std::span<float> rows);

  Reservation set_aside_;
  std::unique_ptr<Ledger> own_ledger_;  // of set_aside_
  PrunerSpec spec_;
  std::unique_ptr<ImageEncoder> images_;
  std::unique_ptr<Pruner> pruner_;  // nullptr: all rows stay
  Reservation bytes_;
  int32_t n_rows_ = 0;
  int64_t n_pruned_ = 0;
  KeepSet kept_;
  std::vector<PicturePart> parts_;
};

}  // namespace weir
