#include "engine/pruned_encoder.h"

#include <cmath>
#include <cstring>
#include <numeric>

namespace weir {

Result<std::unique_ptr<PrunedEncoder>> PrunedEncoder::Make(const PrunerSpec& spec, Encoder& encoder, Ledger& ledger) {
  std::unique_ptr<PrunedEncoder> out(new PrunedEncoder);
  const int32_t n_all = encoder.config().n_rows;
  out->n_rows_ = static_cast<int32_t>(RowsKept(n_all, spec.keep()));
  WEIR_ASSIGN_OR_RETURN(out->pruner_, spec.Make());
  WEIR_RETURN_IF_ERROR(out->pruner_->Prepare(encoder));
  WEIR_ASSIGN_OR_RETURN(out->bytes_, ledger.Reserve(MemTag::kVision, out->pruner_->MemoryBytes() + n_all * 4));
  out->kept_.resize(static_cast<size_t>(n_all));
  std::iota(out->kept_.begin(), out->kept_.end(), 0);
  WEIR_ASSIGN_OR_RETURN(out->images_, ImageEncoder::Make(encoder, ledger));
  return out;
}

Result<std::span<const float>> PrunedEncoder::Encode(const RgbView& image, const VisionObserver* observer) {
  const EncoderConfig& config = images_->config();
  const bool all = n_rows_ == config.n_rows;  // nothing to choose, nothing to look at
  if (!all) pruner_->Begin();
  WEIR_ASSIGN_OR_RETURN(const std::span<float> rows, images_->Encode(image, observer, all ? nullptr : pruner_.get()));
  if (all) return std::span<const float>(rows);
  for (const double importance : pruner_->Importance()) {
    if (!std::isfinite(importance)) {
      return Corrupt("the encoder gives numbers that are not finite for this picture; its file is damaged");
    }
  }
  KeepMostImportant(pruner_->Importance(), n_rows_, &kept_);
  const size_t n_embd = static_cast<size_t>(config.n_embd);
  for (size_t i = 0; i < kept_.size(); ++i) {
    std::memmove(&rows[i * n_embd], &rows[static_cast<size_t>(kept_[i]) * n_embd], n_embd * 4);
  }
  return std::span<const float>(rows.first(kept_.size() * n_embd));
}

}  // namespace weir
