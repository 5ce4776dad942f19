// An encoder of pictures whose rows a pruner thins out before the language model sees them.
#pragma once

#include <memory>
#include <span>

#include "base/ledger.h"
#include "base/status.h"
#include "kv/types.h"
#include "prune/pruner.h"
#include "vision/encoder.h"

namespace weir {

class PrunedEncoder {
 public:
  // Buffers of the encoder and of the pruner are reserved in `ledger` under kVision. Errors of ImageEncoder::Make();
  // kUnsupported when the encoder does not offer what the pruner needs, kInvalidArgument when an option does not fit
  // it.
  static Result<std::unique_ptr<PrunedEncoder>> Make(const PrunerSpec& spec, Encoder& encoder, Ledger& ledger);

  // The picture's rows that stay, [n_rows(), n_embd], in their order; valid until the next call. Errors of
  // Preprocess().
  Result<std::span<const float>> Encode(const RgbView& image, const VisionObserver* observer = nullptr);
  // Which of the encoder's rows they are, ascending.
  std::span<const int32_t> kept() const { return kept_; }
  // Of every picture.
  int32_t n_rows() const { return n_rows_; }

 private:
  PrunedEncoder() = default;
  std::unique_ptr<ImageEncoder> images_;
  std::unique_ptr<Pruner> pruner_;
  Reservation bytes_;
  int32_t n_rows_ = 0;
  KeepSet kept_;
};

}  // namespace weir
