// SPDX-License-Identifier: Apache-2.0
// Vision encoders turn a picture into rows that a language model reads like token embeddings.
//
// To add one, add a file src/vision/my_encoder.cc whose first line is `// weir-plugin: encoder` and which defines
// `extern const EncoderInfo kMyEncoder` (docs/recipes/add-an-encoder.md). Files are llama.cpp's `mmproj` files: GGUF
// with general.architecture `clip`; clip.projector_type selects the encoder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "io/gguf.h"
#include "vision/frame_memory.h"
#include "vision/signals.h"
#include "vision/tiles.h"

namespace weir {

// Words that a family's models expect around a picture's rows, including control tokens. Numbers are indices into
// `text`, -1: no words there.
struct PictureWords {
  std::vector<std::string> text;             // the first one is a single token of the language model's vocabulary
  std::vector<std::vector<int32_t>> tokens;  // the same in that vocabulary, once set (SetWordTokens)
  int32_t open = -1, close = -1;             // around a picture that is encoded once
  int32_t open_last = -1;                    // before the whole picture, if its squares come first (vision/split.h)
  // Before the first square; before square (x, y) it is open_square + y * max_squares + x. Of tiles: with max_tiles. Of
  // slices, between the whole picture and the first; between two of a line, between lines, and at the end it is 1, 2
  // and 3 more.
  int32_t open_square = -1;
  // Of the time before a pair of frames, "<12.5 seconds>": what comes before the number, ten digits, the point, the
  // rest.
  int32_t time = -1;
  static constexpr int32_t kBeforeTime = 0, kZero = 1, kPoint = 11, kAfterTime = 12;
};

// How frames of a video are read two at a time (EncodeArgs::second).
struct FramePairing {
  bool on = false;
  // All pairs of a video stand between one pair of words, have the same lines and columns, and follow one another in
  // time (kv/axes.h). Otherwise each is a picture of its own with its time in words before it (PictureWords::time).
  bool one_video = false;
  double steps_per_second = 0;  // of the time axis; 0: from a pair to the next is one step
};

// A segment of a picture: words, then rows.
struct PicturePart {
  int32_t words = -1;  // of PictureWords
  int32_t n_rows = 0;
  int32_t columns = 1;  // rows of a line, if the model's positions need it (Session::AppendOptions)
};

// The rows of one input.
struct PictureRows {
  int32_t n = 0, columns = 1;
};

struct EncoderConfig {
  std::string projector, name;
  ImageTransform transform;  // from pixels to the input
  int32_t n_embd = 0;        // width of a row: the language model's
  int32_t n_rows = 0;        // rows of one input, of the largest if they differ
  int32_t n_side = 0;        // if they form a square: rows along each side
  // If pictures are encoded in tiles (vision/tiles.h): the grids, and the row that ends a line. Otherwise empty.
  std::vector<Grid> grids;
  std::span<const float> newline;  // [n_embd], the encoder's
  int32_t n_recalled = 0;          // if frames are kept in a FrameMemory: the most rows it returns
  int32_t max_squares = 0;         // if pictures are cut into squares (vision/split.h): the most along each side
  // If pictures are stretched over a grid of tiles (vision/stretch.h): how many. Otherwise 0.
  int32_t min_tiles = 0, max_tiles = 0;
  // Where inputs differ in size: pixels along a side of a tile, and how many pixels a picture that is cut into tiles
  // has more than, both sides rounded to multiples of the transform's factor. The whole picture has its own size then.
  int32_t tile_side = 0;
  int64_t tile_above = 0;
  // If pictures are read as a whole and in slices (vision/slices.h): the most of them. Otherwise 0 or 1.
  int32_t max_slices = 0;
  PictureWords words;
  FramePairing pairing;
  // The most rows of any picture.
  int32_t max_rows() const;
  // Whether pictures may be read in more than one view.
  bool in_parts() const { return !grids.empty() || max_squares > 0 || max_tiles > 0 || max_slices > 1; }
};

// Receives named intermediates of an encoder: ("v.blk.3.attn_out", rows, columns, data).
using VisionObserver = std::function<void(const std::string& name, int64_t n_rows, int64_t n_cols, const float* data)>;

// All memory is the backend's; the host reads and writes only pixels (Access::kShared).
struct EncodeArgs {
  const float* pixels = nullptr;  // InputFloats() of the transform, as made by Preprocess()
  float* out = nullptr;           // [n_rows, n_embd], RowsOf(pixels) of them
  uint8_t* workspace = nullptr;   // WorkspaceBytes() bytes, 64-byte aligned
  // Their arguments are in the memory of operations: on a device, not accessible to the host (ImageEncoder passes
  // copies).
  const VisionObserver* observer = nullptr;
  SignalSink* signals = nullptr;  // receives the attention; nullptr: none
  // With config().pairing: the newer frame of a pair, of the same size; `pixels` is the older one. nullptr: `pixels`
  // is both.
  const float* second = nullptr;
};

// Immutable after loading. SignalSource: the signals of a picture that it offers, none by default.
class Encoder : public SignalSource {
 public:
  // `backend` must outlive it.
  Backend& backend() const { return backend_; }
  const EncoderConfig& config() const { return config_; }
  void SetWordTokens(std::vector<std::vector<int32_t>> tokens) { config_.words.tokens = std::move(tokens); }
  virtual PictureRows RowsOf(const float* /*pixels*/) const { return {config_.n_rows}; }
  virtual int64_t WorkspaceBytes() const = 0;
  // Runs the backend's operations, which may be unfinished when it returns.
  virtual void Encode(const EncodeArgs& args) = 0;
  // If config().n_recalled > 0: bytes of a stream's FrameMemory, and a new one in such memory (64-byte aligned), which
  // the caller keeps as long as it and the encoder.
  virtual int64_t FrameMemoryBytes() const { return 0; }
  virtual std::unique_ptr<FrameMemory> MakeFrameMemory(uint8_t* /*memory*/) { return nullptr; }

 protected:
  explicit Encoder(Backend& backend) : backend_(backend) {}
  Backend& backend_;
  EncoderConfig config_;
};

struct EncoderInfo {
  const char* name;       // = file name
  const char* projector;  // the clip.projector_type it reads
  const char* models;     // well-known models, for messages
  // Checks the metadata, binds every tensor (a missing or unknown one is an error that names it) and prepares the
  // weights in `backend`; bytes are reserved in `ledger` under kWeights.
  Result<std::unique_ptr<Encoder>> (*load)(const GgufFile& file, Backend& backend, Ledger& ledger);
  // Runs loops of its own over the results of operations: it needs a backend that uses host memory.
  bool host_only = false;
};

// The `load` of a class E with a constructor E(Backend&) and a Status Load(const GgufFile&, Ledger&).
template <class E>
Result<std::unique_ptr<Encoder>> LoadEncoderAs(const GgufFile& file, Backend& backend, Ledger& ledger) {
  auto encoder = std::make_unique<E>(backend);
  WEIR_RETURN_IF_ERROR(encoder->Load(file, ledger));
  return std::unique_ptr<Encoder>(std::move(encoder));
}

// Every encoder of the folder, sorted by name. (Generated.)
std::span<const EncoderInfo* const> AllEncoderInfos();

// Whether the file says that it is a vision encoder.
bool IsEncoder(const GgufFile& file);
// The encoder for the file's projector. kInvalidArgument when the file is not a vision encoder, kNotFound when it does
// not name its architecture, kUnsupported names an unknown projector and lists the known ones.
Result<const EncoderInfo*> FindEncoder(const GgufFile& file);
// Finds and loads it. kUnsupported also when it is host_only and the backend is a device's.
Result<std::unique_ptr<Encoder>> LoadEncoder(const GgufFile& file, Backend& backend, Ledger& ledger);

// An encoder with its working memory: pixels in, rows out, both in host memory, whatever the encoder runs on. Its
// buffers are reserved under kVision when it is made; the additional memory for a picture's size (Preprocess) is
// reserved while that picture is read.
class ImageEncoder {
 public:
  static Result<std::unique_ptr<ImageEncoder>> Make(Encoder& encoder, Ledger& ledger);

  // Bytes that Make() reserves.
  static int64_t Bytes(const Encoder& encoder);

  // Rows of the picture, [n, n_embd]: n_rows of the whole picture, followed by those of the tiles if the encoder has
  // grids, or preceded by those of the squares or tiles if it cuts pictures into those. Valid until the next call.
  // Errors of Preprocess(). `signals` are those of the whole picture.
  Result<std::span<float>> Encode(const RgbView& image, const VisionObserver* observer = nullptr,
                                  SignalSink* signals = nullptr);
  // Rows of a frame of a video, which is one view, whatever pictures are cut into. Errors of Preprocess().
  Result<std::span<float>> EncodeFrame(const RgbView& frame, const VisionObserver* observer = nullptr,
                                       SignalSink* signals = nullptr);
  // Rows of an input made by Preprocess(), [3, size, size]: without tiles, as for frames of a video.
  std::span<float> EncodePixels(const float* pixels, const VisionObserver* observer = nullptr,
                                SignalSink* signals = nullptr);
  // A picture or frame as the input of EncodePixels() and EncodePair(); valid until the next call. Errors of
  // Preprocess().
  Result<const float*> Prepare(const RgbView& image);
  // Rows of two frames of a video as one, of an encoder that pairs frames, as by EncodePixels(); both have the same
  // size. nullptr: `first` is both.
  std::span<float> EncodePair(const float* first, const float* second, const VisionObserver* observer = nullptr,
                              SignalSink* signals = nullptr);
  // Adds a frame to a memory, as a picture or as made by Preprocess(). Errors of Preprocess().
  Status TakeFrame(const RgbView& frame, FrameMemory& memory, const VisionObserver* observer = nullptr);
  void TakePixels(const float* pixels, FrameMemory& memory, const VisionObserver* observer = nullptr);
  // The memory's rows for its frames, [n, n_embd]; valid until the next call. REQUIRES: memory.n_rows() > 0.
  std::span<float> Recall(FrameMemory& memory, const VisionObserver* observer = nullptr);
  // The layout of the last picture's or frame's rows, in order, with the words between them.
  std::span<const PicturePart> parts() const { return parts_; }
  const EncoderConfig& config() const { return encoder_.config(); }

 private:
  ImageEncoder(Encoder& encoder, Ledger& ledger) : encoder_(encoder), ledger_(ledger) {}
  // Encodes one input; complete when it returns.
  void Run(const EncodeArgs& args);
  void Run(const float* pixels, float* out, const VisionObserver* observer, SignalSink* signals) {
    Run({pixels, out, nullptr, observer, signals});
  }
  Status EncodeTiles(const RgbView& image, const VisionObserver* observer, int64_t* n_rows);
  Result<std::span<float>> EncodeSquares(const RgbView& image, const VisionObserver* observer, SignalSink* signals);
  Result<std::span<float>> EncodeStretched(const RgbView& image, const VisionObserver* observer, SignalSink* signals);
  Result<std::span<float>> EncodeTilesAndWhole(const RgbView& image, const VisionObserver* observer,
                                               SignalSink* signals);
  Result<std::span<float>> EncodeSlices(const RgbView& image, const VisionObserver* observer, SignalSink* signals);

  Encoder& encoder_;
  Ledger& ledger_;
  Buffer pixels_, rows_, workspace_;
  Buffer tile_;       // [n_rows, n_embd], if there are tiles
  Buffer first_;      // if the encoder pairs frames on a device: a copy of the first
  HostBuffer shown_;  // if the encoder runs on a device: copies for a sink
  std::vector<PicturePart> parts_;
};

}  // namespace weir
