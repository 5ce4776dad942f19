// An encoder of pictures whose rows a pruner thins out before the language model sees them; without a pruner, all of
// them stay.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "kv/types.h"
#include "prune/pruner.h"
#include "vision/encoder.h"

namespace weir {

class PrunedEncoder {
 public:
  // Bytes that Make() reserves for the pruner, beside ImageEncoder::Bytes(); 0 for a spec without one. kUnsupported
  // when the encoder does not offer what the pruner needs, cuts pictures into tiles or keeps frames together,
  // kInvalidArgument when an option does not fit it.
  static Result<int64_t> PrunerBytes(const PrunerSpec& spec, const Encoder& encoder);

  // Buffers of the encoder and of the pruner are reserved in `ledger` under kVision before they exist. Errors of
  // PrunerBytes() and ImageEncoder::Make().
  static Result<std::unique_ptr<PrunedEncoder>> Make(const PrunerSpec& spec, Encoder& encoder, Ledger& ledger);

  // The picture's rows that stay, [n, n_embd], in their order; valid until the next call. Errors of Preprocess();
  // kCorrupt when the pruner was told numbers that are none.
  Result<std::span<const float>> Encode(const RgbView& image, const VisionObserver* observer = nullptr);
  // Of what Preprocess() made, [3, size, size], as frames of a video are looked at.
  Result<std::span<const float>> EncodePixels(const float* pixels, const VisionObserver* observer = nullptr);

  // What the last picture's rows are, in order, and the words between them.
  std::span<const PicturePart> parts() const { return pruner_ == nullptr ? images_->parts() : parts_; }
  // With a pruner: which of the encoder's rows the last picture's are, ascending.
  std::span<const int32_t> kept() const { return kept_; }
  // Of every picture that is not looked at in tiles.
  int32_t n_rows() const { return n_rows_; }
  // Rows that were pruned so far.
  int64_t n_pruned() const { return n_pruned_; }
  // For frames that are kept together, which nobody prunes.
  ImageEncoder& images() { return *images_; }
  const PrunerSpec& spec() const { return spec_; }

 private:
  PrunedEncoder() = default;
  // Who is told of the picture that comes: nobody when there is nothing to choose.
  SignalSink* BeginPicture();
  // Moves the rows that stay to the front.
  Result<std::span<const float>> Thin(std::span<float> rows);

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
