// SPDX-License-Identifier: Apache-2.0
#include "engine/picture_encoder.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/picture_parts.h"

namespace weir {

Result<int64_t> PictureEncoder::PrunerBytes(const PrunerSpec& spec, const Encoder& encoder) {
  if (spec.info == nullptr) return int64_t{0};
  if (encoder.config().in_parts()) {
    return Unsupported("pruner {}: pictures that are looked at in tiles are not pruned", spec.info->name);
  }
  if (encoder.config().n_recalled > 0) {
    return Unsupported("pruner {}: rows of an encoder that keeps frames together are not pruned", spec.info->name);
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Pruner> pruner, spec.Make());
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes, pruner->MemoryBytes(encoder));
  return bytes + int64_t{encoder.config().n_rows} * 4;
}

Result<std::unique_ptr<PictureEncoder>> PictureEncoder::Make(const PrunerSpec& spec, Encoder& encoder, Ledger& ledger) {
  std::unique_ptr<PictureEncoder> out(new PictureEncoder);
  out->spec_ = spec;
  out->n_rows_ = encoder.config().n_rows;
  WEIR_ASSIGN_OR_RETURN(const int64_t pruner_bytes, PrunerBytes(spec, encoder));
  WEIR_ASSIGN_OR_RETURN(out->bytes_, ledger.Reserve(MemTag::kVision, pruner_bytes));
  if (spec.info != nullptr) {
    WEIR_ASSIGN_OR_RETURN(out->pruner_, spec.Make());
    out->pruner_->Prepare(encoder);
    out->kept_.resize(static_cast<size_t>(out->n_rows_));
    std::iota(out->kept_.begin(), out->kept_.end(), 0);
    out->n_rows_ = static_cast<int32_t>(RowsKept(out->n_rows_, spec.keep()));
  }
  WEIR_ASSIGN_OR_RETURN(out->images_, ImageEncoder::Make(encoder, ledger));
  return out;
}

Result<int64_t> PictureEncoder::BytesSetAside(const PrunerSpec& spec, const Encoder& encoder, int32_t max_side) {
  WEIR_ASSIGN_OR_RETURN(const int64_t pruner, PrunerBytes(spec, encoder));
  return ImageEncoder::Bytes(encoder) + pruner + PreprocessBytes(max_side, max_side, encoder.config().transform);
}

Result<std::unique_ptr<PictureEncoder>> PictureEncoder::MakeSetAside(const PrunerSpec& spec, Encoder& encoder,
                                                                     int32_t max_side, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes, BytesSetAside(spec, encoder, max_side));
  WEIR_ASSIGN_OR_RETURN(Reservation set_aside, ledger.Reserve(MemTag::kVision, bytes));
  auto own = std::make_unique<Ledger>(bytes);
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<PictureEncoder> out, Make(spec, encoder, *own));
  out->set_aside_ = std::move(set_aside);
  out->own_ledger_ = std::move(own);
  return out;
}

Status PictureEncoder::Read(const RgbView& picture, Modality modality, Session& session,
                            const Session::AppendOptions& append) {
  WEIR_ASSIGN_OR_RETURN(const std::span<const float> rows,
                        modality == Modality::kVideo ? EncodeFrame(picture) : Encode(picture));
  return AppendParts(config(), parts(), rows, modality, session, append);
}

Status PictureEncoder::ReadPrepared(const float* pixels, Modality modality, Session& session,
                                    const Session::AppendOptions& append) {
  WEIR_ASSIGN_OR_RETURN(const std::span<const float> rows, EncodePixels(pixels));
  return AppendParts(config(), parts(), rows, modality, session, append);
}

SignalSink* PictureEncoder::BeginPicture() {
  if (pruner_ == nullptr || n_rows_ == images_->config().n_rows) return nullptr;
  pruner_->Begin();
  return pruner_.get();
}

Result<std::span<const float>> PictureEncoder::Encode(const RgbView& image, const VisionObserver* observer) {
  WEIR_ASSIGN_OR_RETURN(const std::span<float> rows, images_->Encode(image, observer, BeginPicture()));
  return Thin(rows);
}

Result<std::span<const float>> PictureEncoder::EncodeFrame(const RgbView& frame, const VisionObserver* observer) {
  WEIR_ASSIGN_OR_RETURN(const std::span<float> rows, images_->EncodeFrame(frame, observer, BeginPicture()));
  return Thin(rows);
}

Result<std::span<const float>> PictureEncoder::EncodePixels(const float* pixels, const VisionObserver* observer) {
  return Thin(images_->EncodePixels(pixels, observer, BeginPicture()));
}

Result<std::span<const float>> PictureEncoder::EncodePair(const float* first, const float* second) {
  return Thin(images_->EncodePair(first, second, nullptr, BeginPicture()));
}

Result<std::span<const float>> PictureEncoder::Thin(std::span<float> rows) {
  parts_.assign(images_->parts().begin(), images_->parts().end());
  if (pruner_ == nullptr || n_rows_ == images_->config().n_rows) return std::span<const float>(rows);
  parts_.front() = {parts_.front().words, n_rows_};
  for (const double importance : pruner_->Importance()) {
    if (!std::isfinite(importance)) {
      return Corrupt("the encoder gives numbers that are not finite for this picture; its file is damaged");
    }
  }
  KeepMostImportant(pruner_->Importance(), n_rows_, &kept_);
  const size_t n_embd = static_cast<size_t>(images_->config().n_embd);
  for (size_t i = 0; i < kept_.size(); ++i) {
    std::memmove(&rows[i * n_embd], &rows[static_cast<size_t>(kept_[i]) * n_embd], n_embd * 4);
  }
  n_pruned_ += images_->config().n_rows - n_rows_;
  return std::span<const float>(rows.first(kept_.size() * n_embd));
}

}  // namespace weir
