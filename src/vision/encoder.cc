#include "vision/encoder.h"

namespace weir {

Result<std::unique_ptr<Encoder>> LoadEncoder(const GgufFile& file, Backend& backend, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const std::string architecture, file.String("general.architecture"));
  WEIR_ASSIGN_OR_RETURN(const bool has_vision, file.BoolOr("clip.has_vision_encoder", false));
  if (architecture != "clip" || !has_vision) {
    return InvalidArgument("%s is no vision encoder: its architecture is '%s'", file.path().c_str(),
                           architecture.c_str());
  }
  const char* key = file.Has("clip.vision.projector_type") ? "clip.vision.projector_type" : "clip.projector_type";
  // The oldest files have no such key; they are LLaVA's.
  WEIR_ASSIGN_OR_RETURN(const std::string projector, file.StringOr(key, "mlp"));
  std::string known;
  for (const EncoderInfo* info : AllEncoderInfos()) {
    if (projector == info->projector) return info->load(file, backend, ledger);
    known += (known.empty() ? "" : ", ") + std::string(info->projector);
  }
  return Unsupported("%s: projector '%s' is not supported; this build knows: %s", file.path().c_str(),
                     projector.c_str(), known.c_str());
}

Result<std::unique_ptr<ImageEncoder>> ImageEncoder::Make(Encoder& encoder, Ledger& ledger) {
  std::unique_ptr<ImageEncoder> out(new ImageEncoder(encoder, ledger));
  const EncoderConfig& config = encoder.config();
  const int64_t side = config.transform.size;
  const auto allocate = [&ledger](int64_t bytes) { return HostBuffer::Allocate(ledger, MemTag::kVision, bytes); };
  WEIR_ASSIGN_OR_RETURN(out->pixels_, allocate(3 * side * side * 4));
  WEIR_ASSIGN_OR_RETURN(out->rows_, allocate(static_cast<int64_t>(config.n_rows) * config.n_embd * 4));
  WEIR_ASSIGN_OR_RETURN(out->workspace_, allocate(encoder.WorkspaceBytes()));
  return out;
}

Result<std::span<float>> ImageEncoder::Encode(const RgbView& image, const VisionObserver* observer,
                                              SignalSink* signals) {
  const EncoderConfig& config = encoder_.config();
  WEIR_RETURN_IF_ERROR(Preprocess(image, config.transform, ledger_, pixels_.as<float>()));
  encoder_.Encode({pixels_.as<float>(), rows_.as<float>(), workspace_.data(), observer, signals});
  return std::span<float>(rows_.as<float>(), static_cast<size_t>(config.n_rows) * static_cast<size_t>(config.n_embd));
}

}  // namespace weir
