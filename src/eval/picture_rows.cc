#include "eval/picture_rows.h"

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

Result<std::unique_ptr<PictureRows>> PictureRows::Make(PictureFiles& files, Encoder& encoder,
                                                       const std::optional<PrunerSpec>& pruner, int64_t most_bytes) {
  std::unique_ptr<PictureRows> out(new PictureRows(files, encoder, most_bytes));
  if (pruner.has_value()) {
    WEIR_ASSIGN_OR_RETURN(out->pruned_, PrunedEncoder::Make(*pruner, encoder, out->ledger_));
  } else {
    WEIR_ASSIGN_OR_RETURN(out->images_, ImageEncoder::Make(encoder, out->ledger_));
  }
  return out;
}

int32_t PictureRows::max_rows() const { return pruned_ == nullptr ? encoder_.config().max_rows() : pruned_->n_rows(); }

Result<std::span<const float>> PictureRows::Get(const std::string& path, bool is_frame) {
  const EncoderConfig& config = encoder_.config();
  // The rows of the whole picture come before those of its tiles.
  const auto wanted = [&](std::span<const float> rows) {
    const size_t n_whole = static_cast<size_t>(config.n_rows) * static_cast<size_t>(config.n_embd);
    return is_frame && rows.size() > n_whole ? rows.first(n_whole) : rows;
  };
  if (const auto found = kept_.find(path); found != kept_.end()) return wanted(found->second.rows);
  WEIR_ASSIGN_OR_RETURN(const RgbView picture, files_.Get(path));
  std::span<const float> rows;
  if (pruned_ != nullptr) {
    WEIR_ASSIGN_OR_RETURN(rows, pruned_->Encode(picture));
  } else {
    WEIR_ASSIGN_OR_RETURN(rows, images_->Encode(picture));
  }
  const int64_t bytes = static_cast<int64_t>(rows.size_bytes());
  if (kept_bytes_ + bytes > most_bytes_) return wanted(rows);
  Kept kept;
  WEIR_ASSIGN_OR_RETURN(kept.bytes, ledger_.Reserve(MemTag::kVision, bytes));
  kept.rows.assign(rows.begin(), rows.end());
  kept_bytes_ += bytes;
  return wanted(kept_.emplace(path, std::move(kept)).first->second.rows);
}

}  // namespace weir
