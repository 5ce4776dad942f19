// SPDX-License-Identifier: Apache-2.0
#include "vision/encoder.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "vision/slices.h"
#include "vision/split.h"
#include "vision/stretch.h"

namespace weir {

bool IsEncoder(const GgufFile& file) {
  const Result<std::string> architecture = file.String("general.architecture");
  return architecture.ok() && *architecture == "clip";
}

Result<const EncoderInfo*> FindEncoder(const GgufFile& file) {
  WEIR_ASSIGN_OR_RETURN(const std::string architecture, file.String("general.architecture"));
  WEIR_ASSIGN_OR_RETURN(const bool has_vision, file.BoolOr("clip.has_vision_encoder", false));
  if (architecture != "clip" || !has_vision) {
    return InvalidArgument("{} is no vision encoder: its architecture is '{}'", file.path(), architecture);
  }
  const char* key = file.Has("clip.vision.projector_type") ? "clip.vision.projector_type" : "clip.projector_type";
  // The oldest files have no such key; they are LLaVA's.
  WEIR_ASSIGN_OR_RETURN(const std::string projector, file.StringOr(key, "mlp"));
  std::string known;
  for (const EncoderInfo* info : AllEncoderInfos()) {
    if (projector == info->projector) return info;
    known += (known.empty() ? "" : ", ") + std::string(info->projector);
  }
  return Unsupported("{}: projector '{}' is not supported; this build knows: {}", file.path(), projector, known);
}

Result<std::unique_ptr<Encoder>> LoadEncoder(const GgufFile& file, Backend& backend, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const EncoderInfo* info, FindEncoder(file));
  if (info->host_only && !backend.on_host()) {
    return Unsupported("{}: vision encoder '{}' runs on the CPU only", file.path(), info->projector);
  }
  auto encoder = info->load(file, backend, ledger);
  const StatusCode code = encoder.status().code();
  if (code != StatusCode::kNotFound && code != StatusCode::kCorrupt && code != StatusCode::kUnsupported) {
    return encoder;
  }
  // The error names the encoder whose rules the file breaks.
  return Status(code, fmt::format("{} (read as vision encoder '{}': {})", encoder.status().message(), info->projector,
                                  info->models));
}

namespace {

int64_t RowsBytes(const EncoderConfig& config) {
  return std::max(config.max_rows(), config.n_recalled) * static_cast<int64_t>(config.n_embd) * 4;
}

// Of ImageEncoder::first_.
int64_t FirstBytes(const Encoder& encoder) {
  const EncoderConfig& config = encoder.config();
  return config.pairing.on && !encoder.backend().on_host() ? InputFloats(config.transform) * 4 : 0;
}

// The largest map passed to a sink, if it cannot be passed in place.
int64_t ShownBytes(const Encoder& encoder) {
  if (encoder.backend().on_host()) return 0;
  int64_t most = 0;
  for (const SignalKind kind :
       {SignalKind::kImageMass, SignalKind::kQuerySelf, SignalKind::kQueryCross, SignalKind::kOutputs}) {
    const SignalShape shape = encoder.ShapeOf(kind);
    if (shape.n_layers > 0) most = std::max(most, shape.n_rows * shape.n_cols * 4);
  }
  return most;
}

// Passes data that a device computes to a sink on the host.
class ShowCopies final : public SignalSink {
 public:
  ShowCopies(Backend& backend, SignalSink* sink, float* copy) : backend_(backend), sink_(sink), copy_(copy) {}
  bool Wants(SignalKind kind, int32_t layer) const override { return sink_->Wants(kind, layer); }
  void Take(const Signal& signal) override {
    backend_.Copy(copy_, signal.values, signal.shape.n_rows * signal.shape.n_cols * 4);
    Signal shown = signal;
    shown.values = copy_;
    sink_->Take(shown);
  }

 private:
  Backend& backend_;
  SignalSink* const sink_;
  float* const copy_;
};

}  // namespace

Result<std::unique_ptr<ImageEncoder>> ImageEncoder::Make(Encoder& encoder, Ledger& ledger) {
  std::unique_ptr<ImageEncoder> out(new ImageEncoder(encoder, ledger));
  const EncoderConfig& config = encoder.config();
  const auto allocate = [&](int64_t bytes, Access access) {
    return encoder.backend().Allocate(ledger, MemTag::kVision, bytes, access);
  };
  WEIR_ASSIGN_OR_RETURN(out->pixels_, allocate(InputFloats(config.transform) * 4, Access::kShared));
  const int64_t row_bytes = static_cast<int64_t>(config.n_embd) * 4;
  WEIR_ASSIGN_OR_RETURN(out->rows_, allocate(RowsBytes(config), Access::kShared));
  if (!config.grids.empty()) {
    WEIR_ASSIGN_OR_RETURN(out->tile_, allocate(config.n_rows * row_bytes, Access::kShared));
  }
  if (const int64_t bytes = FirstBytes(encoder); bytes > 0) {
    WEIR_ASSIGN_OR_RETURN(out->first_, allocate(bytes, Access::kShared));
  }
  WEIR_ASSIGN_OR_RETURN(out->workspace_, allocate(encoder.WorkspaceBytes(), Access::kDevice));
  WEIR_ASSIGN_OR_RETURN(out->shown_, HostBuffer::Allocate(ledger, MemTag::kVision, ShownBytes(encoder)));
  return out;
}

int32_t EncoderConfig::max_rows() const {
  int32_t most = 0;
  for (const Grid& grid : grids) {
    most = std::max(most, grid.height / transform.size * n_side * (grid.width / transform.size * n_side + 1));
  }
  return n_rows * (1 + max_squares * max_squares + max_tiles + (max_slices > 1 ? max_slices : 0)) + most;
}

int64_t ImageEncoder::Bytes(const Encoder& encoder) {
  const EncoderConfig& config = encoder.config();
  const int64_t row_bytes = static_cast<int64_t>(config.n_embd) * 4;
  return PageRound(InputFloats(config.transform) * 4) + PageRound(RowsBytes(config)) +
         (config.grids.empty() ? 0 : PageRound(config.n_rows * row_bytes)) + PageRound(encoder.WorkspaceBytes()) +
         PageRound(FirstBytes(encoder)) + PageRound(ShownBytes(encoder));
}

void ImageEncoder::Run(const EncodeArgs& args) {
  Backend& backend = encoder_.backend();
  EncodeArgs here = args;
  here.workspace = workspace_.data();
  if (backend.on_host()) return encoder_.Encode(here);
  const auto copied = [&](const float* pixels, const Buffer& to) {
    if (pixels == to.as<float>()) return pixels;
    backend.Copy(to.data(), pixels, InputFloats(config().transform) * 4);
    return static_cast<const float*>(to.as<float>());
  };
  // The caller may have prepared the second one in pixels_, or may still need what is there.
  here.pixels = copied(args.pixels, config().pairing.on && args.pixels != pixels_.as<float>() ? first_ : pixels_);
  if (args.second != nullptr) here.second = copied(args.second, pixels_);
  const VisionObserver* const observer = args.observer;
  SignalSink* const signals = args.signals;
  ShowCopies copies(backend, signals, shown_.as<float>());
  const VisionObserver show = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
    std::vector<float> copy(static_cast<size_t>(n_rows * n_cols));
    backend.Copy(copy.data(), data, n_rows * n_cols * 4);
    (*observer)(name, n_rows, n_cols, copy.data());
  };
  here.observer = observer != nullptr ? &show : nullptr;
  here.signals = signals != nullptr ? &copies : nullptr;
  encoder_.Encode(here);
  backend.Synchronise();
}

Result<std::span<float>> ImageEncoder::Encode(const RgbView& image, const VisionObserver* observer,
                                              SignalSink* signals) {
  if (encoder_.config().max_squares > 0) return EncodeSquares(image, observer, signals);
  if (encoder_.config().max_tiles > 0) return EncodeStretched(image, observer, signals);
  if (encoder_.config().max_slices > 1) return EncodeSlices(image, observer, signals);
  WEIR_RETURN_IF_ERROR(Preprocess(image, encoder_.config().transform, ledger_, pixels_.as<float>()));
  const std::span<float> whole = EncodePixels(pixels_.as<float>(), observer, signals);
  if (encoder_.config().grids.empty()) return whole;
  int64_t n_rows = 0;
  WEIR_RETURN_IF_ERROR(EncodeTiles(image, observer, &n_rows));
  parts_ = {{-1, static_cast<int32_t>(n_rows)}};
  return std::span<float>(whole.data(), static_cast<size_t>(n_rows * encoder_.config().n_embd));
}

Status ImageEncoder::EncodeTiles(const RgbView& image, const VisionObserver* observer, int64_t* n_rows) {
  const EncoderConfig& config = encoder_.config();
  const int32_t side = config.transform.size, n_side = config.n_side;
  const int64_t n_embd = config.n_embd;
  const TileLayout layout = LayOutTiles(image.width, image.height, config.grids, side, n_side);
  float* const to = rows_.as<float>() + config.n_rows * n_embd;
  const int64_t line = layout.n_x + 1;
  for (int32_t y = 0; y < layout.grid.height / side; ++y) {
    for (int32_t x = 0; x < layout.grid.width / side; ++x) {
      const Square square = {layout.width, layout.height, x * side - layout.left, y * side - layout.top};
      WEIR_RETURN_IF_ERROR(PreprocessSquare(image, config.transform, square, ledger_, pixels_.as<float>()));
      Run(pixels_.as<float>(), tile_.as<float>(), observer, nullptr);
      for (int32_t row = 0; row < config.n_rows; ++row) {
        const int64_t at_y = int64_t{y} * n_side + row / n_side - layout.y;
        const int64_t at_x = int64_t{x} * n_side + row % n_side - layout.x;
        if (at_y < 0 || at_y >= layout.n_y || at_x < 0 || at_x >= layout.n_x) continue;
        std::memcpy(to + (at_y * line + at_x) * n_embd, tile_.as<float>() + row * n_embd,
                    static_cast<size_t>(n_embd) * 4);
      }
    }
  }
  for (int64_t y = 0; y < layout.n_y; ++y) {
    std::copy(config.newline.begin(), config.newline.end(), to + (y * line + layout.n_x) * n_embd);
  }
  *n_rows = config.n_rows + layout.n_y * line;
  return Status();
}

Result<std::span<float>> ImageEncoder::EncodeSquares(const RgbView& image, const VisionObserver* observer,
                                                     SignalSink* signals) {
  const EncoderConfig& config = encoder_.config();
  const ImageTransform& transform = config.transform;
  const int32_t side = transform.size;
  if (image.width < 1 || image.height < 1) return InvalidArgument("a picture without pixels");
  const SplitLayout layout = LayOutSquares(image.width, image.height, transform.longest_side, side);
  if (layout.n_x == 0) {
    WEIR_RETURN_IF_ERROR(Preprocess(image, transform, ledger_, pixels_.as<float>()));
    return EncodePixels(pixels_.as<float>(), observer, signals);
  }
  PictureCopy copy;
  {
    WEIR_ASSIGN_OR_RETURN(const PictureCopy first, ResizePicture(image, layout.first, transform.resample, ledger_));
    WEIR_ASSIGN_OR_RETURN(copy, ResizePicture(first.view(), layout.copy, transform.resample, ledger_));
  }
  parts_.clear();
  float* to = rows_.as<float>();
  const auto encode = [&](int32_t words, const VisionObserver* seen_by, SignalSink* sink) {
    Run(pixels_.as<float>(), to, seen_by, sink);
    to += int64_t{config.n_rows} * config.n_embd;
    parts_.push_back({words, config.n_rows});
  };
  for (int32_t y = 0; y < layout.n_y; ++y) {
    for (int32_t x = 0; x < layout.n_x; ++x) {
      const Square square = {copy.size.width, copy.size.height, x * side, y * side};
      WEIR_RETURN_IF_ERROR(PreprocessSquare(copy.view(), transform, square, ledger_, pixels_.as<float>()));
      encode(config.words.open_square + y * config.max_squares + x, nullptr, nullptr);
    }
  }
  ImageTransform stretch = transform;
  stretch.fit = Fit::kStretch;
  WEIR_RETURN_IF_ERROR(Preprocess(copy.view(), stretch, ledger_, pixels_.as<float>()));
  encode(config.words.open_last, observer, signals);
  parts_.push_back({config.words.close, 0});
  return std::span<float>(rows_.as<float>(), static_cast<size_t>(to - rows_.as<float>()));
}

Result<std::span<float>> ImageEncoder::EncodeStretched(const RgbView& image, const VisionObserver* observer,
                                                       SignalSink* signals) {
  const EncoderConfig& config = encoder_.config();
  if (image.width < 1 || image.height < 1) return InvalidArgument("a picture without pixels");
  if (config.tile_side > 0) return EncodeTilesAndWhole(image, observer, signals);
  const int32_t side = config.transform.size;
  const TileGrid grid = ChooseGrid(image.width, image.height, side, config.min_tiles, config.max_tiles);
  float* to = rows_.as<float>();
  for (int32_t i = 0; i < grid.n() && grid.n() > 1; ++i) {
    const Square square = {grid.n_x * side, grid.n_y * side, i % grid.n_x * side, i / grid.n_x * side};
    WEIR_RETURN_IF_ERROR(PreprocessSquare(image, config.transform, square, ledger_, pixels_.as<float>()));
    Run(pixels_.as<float>(), to, nullptr, nullptr);
    to += int64_t{config.n_rows} * config.n_embd;
  }
  WEIR_RETURN_IF_ERROR(Preprocess(image, config.transform, ledger_, pixels_.as<float>()));
  Run(pixels_.as<float>(), to, observer, signals);
  const int32_t n_rows = config.n_rows * (grid.n() > 1 ? grid.n() + 1 : 1);
  parts_ = {{config.words.open, n_rows}, {config.words.close, 0}};
  return std::span<float>(rows_.as<float>(), static_cast<size_t>(n_rows) * static_cast<size_t>(config.n_embd));
}

Result<std::span<float>> ImageEncoder::EncodeTilesAndWhole(const RgbView& image, const VisionObserver* observer,
                                                           SignalSink* signals) {
  const EncoderConfig& config = encoder_.config();
  const PictureWords& words = config.words;
  const int32_t side = config.tile_side, factor = config.transform.factor;
  float* const pixels = pixels_.as<float>();
  const auto rounded = [factor](int32_t n) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(n) / factor)) * factor;
  };
  // As the reference counts: a side that rounds to nothing has a patch's pixels, which never makes a picture large.
  if (rounded(image.width) * rounded(image.height) <= config.tile_above) {
    WEIR_RETURN_IF_ERROR(Preprocess(image, config.transform, ledger_, pixels));
    return EncodePixels(pixels, observer, signals);
  }
  const TileGrid grid = ChooseGrid(image.width, image.height, side, config.min_tiles, config.max_tiles);
  float* to = rows_.as<float>();
  parts_.clear();
  const auto encode = [&](int32_t open, const VisionObserver* seen_by, SignalSink* sink) {
    Run(pixels, to, seen_by, sink);
    const PictureRows rows = encoder_.RowsOf(pixels);
    to += int64_t{rows.n} * config.n_embd;
    parts_.push_back({open, rows.n, rows.columns});
  };
  ImageTransform tile = config.transform;
  tile.size = side;
  for (int32_t i = 0; i < grid.n(); ++i) {
    const Square square = {grid.n_x * side, grid.n_y * side, i % grid.n_x * side, i / grid.n_x * side};
    WEIR_RETURN_IF_ERROR(PreprocessSquare(image, tile, square, ledger_, pixels));
    SetInputSize({side, side}, config.transform, pixels);
    encode(words.open_square + i / grid.n_x * config.max_tiles + i % grid.n_x, nullptr, nullptr);
  }
  WEIR_RETURN_IF_ERROR(Preprocess(image, config.transform, ledger_, pixels));
  encode(words.open_last, observer, signals);
  parts_.push_back({words.close, 0});
  return std::span<float>(rows_.as<float>(), static_cast<size_t>(to - rows_.as<float>()));
}

Result<const float*> ImageEncoder::Prepare(const RgbView& image) {
  WEIR_RETURN_IF_ERROR(Preprocess(image, config().transform, ledger_, pixels_.as<float>()));
  return static_cast<const float*>(pixels_.as<float>());
}

Result<std::span<float>> ImageEncoder::EncodeSlices(const RgbView& image, const VisionObserver* observer,
                                                    SignalSink* signals) {
  const EncoderConfig& config = encoder_.config();
  const PictureWords& words = config.words;
  float* const pixels = pixels_.as<float>();
  WEIR_RETURN_IF_ERROR(Preprocess(image, config.transform, ledger_, pixels));
  const std::span<float> whole = EncodePixels(pixels, observer, signals);
  const SliceLayout layout = LayOutSlices(image.width, image.height, config.transform, config.max_slices);
  if (layout.n() == 0) return whole;
  parts_ = {{words.open, config.n_rows}};
  float* to = rows_.as<float>() + int64_t{config.n_rows} * config.n_embd;
  PicturePlace place;
  place.copy = {layout.n_x * layout.slice.width, layout.n_y * layout.slice.height};
  place.size = layout.slice;
  for (int32_t i = 0; i < layout.n(); ++i, to += int64_t{config.n_rows} * config.n_embd) {
    const int32_t x = i % layout.n_x, y = i / layout.n_x;
    place.x = x * layout.slice.width;
    place.y = y * layout.slice.height;
    WEIR_RETURN_IF_ERROR(PreprocessPlace(image, config.transform, place, ledger_, pixels));
    Run(pixels, to, nullptr, nullptr);
    parts_.push_back({words.open_square + (i == 0 ? 0 : x > 0 ? 1 : 2), config.n_rows});
  }
  parts_.push_back({words.open_square + 3, 0});
  return std::span<float>(rows_.as<float>(), static_cast<size_t>(to - rows_.as<float>()));
}

std::span<float> ImageEncoder::EncodePixels(const float* pixels, const VisionObserver* observer, SignalSink* signals) {
  return EncodePair(pixels, nullptr, observer, signals);
}

std::span<float> ImageEncoder::EncodePair(const float* first, const float* second, const VisionObserver* observer,
                                          SignalSink* signals) {
  const EncoderConfig& config = encoder_.config();
  Run({first, rows_.as<float>(), nullptr, observer, signals, second});
  const PictureRows rows = encoder_.RowsOf(first);
  parts_ = {{config.words.open, rows.n, rows.columns}};
  if (config.words.close >= 0) parts_.push_back({config.words.close, 0});
  return std::span<float>(rows_.as<float>(), static_cast<size_t>(rows.n) * static_cast<size_t>(config.n_embd));
}

Result<std::span<float>> ImageEncoder::EncodeFrame(const RgbView& frame, const VisionObserver* observer,
                                                   SignalSink* signals) {
  WEIR_RETURN_IF_ERROR(Preprocess(frame, encoder_.config().transform, ledger_, pixels_.as<float>()));
  return EncodePixels(pixels_.as<float>(), observer, signals);
}

Status ImageEncoder::TakeFrame(const RgbView& frame, FrameMemory& memory, const VisionObserver* observer) {
  WEIR_RETURN_IF_ERROR(Preprocess(frame, encoder_.config().transform, ledger_, pixels_.as<float>()));
  TakePixels(pixels_.as<float>(), memory, observer);
  return Status();
}

void ImageEncoder::TakePixels(const float* pixels, FrameMemory& memory, const VisionObserver* observer) {
  memory.Take({pixels, nullptr, workspace_.data(), observer, nullptr});
}

std::span<float> ImageEncoder::Recall(FrameMemory& memory, const VisionObserver* observer) {
  const int32_t n = memory.n_rows();
  memory.Recall({nullptr, rows_.as<float>(), workspace_.data(), observer, nullptr});
  parts_ = {{-1, n}};
  return std::span<float>(rows_.as<float>(), static_cast<size_t>(n) * static_cast<size_t>(encoder_.config().n_embd));
}

}  // namespace weir
