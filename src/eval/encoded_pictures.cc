// SPDX-License-Identifier: Apache-2.0
#include "eval/encoded_pictures.h"

#include <algorithm>
#include <utility>

namespace weir {

Result<RgbView> PictureFiles::Get(const std::string& path) {
  const auto view = [](const Image& image) { return RgbView{image.rgb(), image.width, image.height}; };
  if (const auto found = kept_.find(path); found != kept_.end()) return view(found->second);
  latest_ = Image();
  WEIR_ASSIGN_OR_RETURN(Image image, DecodeImage(path, ledger_, media_));
  if (ledger_.used_bytes() > most_bytes_) {
    latest_ = std::move(image);
    return view(latest_);
  }
  return view(kept_.emplace(path, std::move(image)).first->second);
}

Result<std::unique_ptr<EncodedPictures>> EncodedPictures::Make(PictureFiles& files, Encoder& encoder,
                                                               const PrunerSpec& pruner, int64_t most_bytes) {
  std::unique_ptr<EncodedPictures> out(new EncodedPictures(files, encoder, most_bytes));
  WEIR_ASSIGN_OR_RETURN(out->images_, PictureEncoder::Make(pruner, encoder, out->ledger_));
  const int64_t n = InputFloats(encoder.config().transform);
  WEIR_ASSIGN_OR_RETURN(out->pixels_, HostBuffer::Allocate(out->ledger_, MemTag::kVision, n * 4));
  return out;
}

int32_t EncodedPictures::max_tokens() const {
  const EncoderConfig& config = encoder_.config();
  size_t words = 0;
  for (const std::vector<int32_t>& tokens : config.words.tokens) words = std::max(words, tokens.size());
  // Before every square, and around the whole.
  const bool pruned = images_->pruner().info != nullptr;  // then without squares
  const int32_t n_time = config.words.time < 0 ? 0 : 12;  // "<123456.5 seconds>"
  const int32_t n_words = (pruned ? 0 : config.max_squares * config.max_squares) + 2 + n_time;
  return (pruned ? images_->n_rows() : config.max_rows()) + n_words * static_cast<int32_t>(words);
}

Result<EncodedPicture> EncodedPictures::Encode(const RgbView& picture, bool is_frame) {
  std::span<const float> rows;
  if (is_frame) {
    WEIR_RETURN_IF_ERROR(images_->Prepare(picture, ledger_, pixels_.as<float>()));
    WEIR_ASSIGN_OR_RETURN(rows, images_->EncodePixels(pixels_.as<float>()));
  } else {
    WEIR_ASSIGN_OR_RETURN(rows, images_->Encode(picture));
  }
  return EncodedPicture{rows, images_->parts()};
}

Result<const float*> EncodedPictures::Prepared(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const RgbView picture, files_.Get(path));
  WEIR_RETURN_IF_ERROR(images_->Prepare(picture, ledger_, pixels_.as<float>()));
  return static_cast<const float*>(pixels_.as<float>());
}

Result<EncodedPicture> EncodedPictures::Get(const std::string& path, bool is_frame) {
  if (const auto found = kept_.find({path, is_frame}); found != kept_.end()) {
    return EncodedPicture{found->second.rows, found->second.parts};
  }
  WEIR_ASSIGN_OR_RETURN(const RgbView picture, files_.Get(path));
  WEIR_ASSIGN_OR_RETURN(const EncodedPicture made, Encode(picture, is_frame));
  const int64_t bytes = static_cast<int64_t>(made.rows.size_bytes());
  if (kept_bytes_ + bytes > most_bytes_) return made;
  Kept kept;
  WEIR_ASSIGN_OR_RETURN(kept.bytes, ledger_.Reserve(MemTag::kVision, bytes));
  kept.rows.assign(made.rows.begin(), made.rows.end());
  kept.parts.assign(made.parts.begin(), made.parts.end());
  kept_bytes_ += bytes;
  const Kept& now = kept_.emplace(std::pair(path, is_frame), std::move(kept)).first->second;
  return EncodedPicture{now.rows, now.parts};
}

}  // namespace weir
