// SPDX-License-Identifier: Apache-2.0
// Vision encoders: what turns a picture into rows that a language model reads like token embeddings.
//
// Adding one is adding one file src/vision/my_encoder.cc whose first line is `// weir-plugin: encoder` and which
// defines `extern const EncoderInfo kMyEncoder` (docs/recipes/add-an-encoder.md). Files are llama.cpp's `mmproj` ones:
// GGUF with general.architecture `clip`; clip.projector_type says which encoder reads it.
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

// Words that models of a family read around a picture's rows, control tokens among them. Numbers are places in `text`,
// -1: no words there.
struct PictureWords {
  std::vector<std::string> text;             // the first one is a single token of the language model's vocabulary
  std::vector<std::vector<int32_t>> tokens;  // the same in that vocabulary, once somebody has told (SetWordTokens)
  int32_t open = -1, close = -1;             // around a picture that is looked at once
  int32_t open_last = -1;                    // before the whole, where its squares come first (vision/split.h)
  int32_t open_square = -1;  // before the first square; before square (x, y) it is open_square + y * max_squares + x
};

// A stretch of a picture: words, then rows.
struct PicturePart {
  int32_t words = -1;  // of PictureWords
  int32_t n_rows = 0;
  int32_t columns = 1;  // rows of a line, where the model's positions ask for it (Session::AppendOptions)
};

// What an input becomes.
struct PictureRows {
  int32_t n = 0, columns = 1;
};

struct EncoderConfig {
  std::string projector, name;
  ImageTransform transform;  // from pixels to the input
  int32_t n_embd = 0;        // of a row: the language model's
  int32_t n_rows = 0;        // rows of one input, of the largest where they differ
  int32_t n_side = 0;        // where they form a square: rows along each side
  // Where pictures are looked at in tiles (vision/tiles.h): the grids, and the row that ends a line. Otherwise empty.
  std::vector<Grid> grids;
  std::span<const float> newline;  // [n_embd], the encoder's
  int32_t n_recalled = 0;          // where frames are kept together (FrameMemory): most rows that they become
  int32_t max_squares = 0;  // where pictures are cut into squares (vision/split.h): at most so many along each side
  PictureWords words;
  // Most rows that a picture becomes.
  int32_t max_rows() const;
};

// Receives named intermediates of an encoder: ("v.blk.3.attn_out", rows, columns, data).
using VisionObserver = std::function<void(const std::string& name, int64_t n_rows, int64_t n_cols, const float* data)>;

// All memory is the backend's; the host itself reads and writes no more than pixels (Access::kShared).
struct EncodeArgs {
  const float* pixels = nullptr;  // InputFloats() of the transform, as Preprocess() makes them
  float* out = nullptr;           // [n_rows, n_embd], RowsOf(pixels) of them
  uint8_t* workspace = nullptr;   // WorkspaceBytes() bytes, 64-byte aligned
  // What these are shown lies where operations left it: on a device, out of the host's reach (ImageEncoder shows
  // copies).
  const VisionObserver* observer = nullptr;
  SignalSink* signals = nullptr;  // who wants to see the attention; nullptr: nobody
};

// Immutable after loading. SignalSource: what it tells a sink about a picture, nothing by default.
class Encoder : public SignalSource {
 public:
  // Which must outlive it.
  Backend& backend() const { return backend_; }
  const EncoderConfig& config() const { return config_; }
  void SetWordTokens(std::vector<std::vector<int32_t>> tokens) { config_.words.tokens = std::move(tokens); }
  virtual PictureRows RowsOf(const float* /*pixels*/) const { return {config_.n_rows}; }
  virtual int64_t WorkspaceBytes() const = 0;
  // Made of the backend's operations, which may still run when it returns.
  virtual void Encode(const EncodeArgs& args) = 0;
  // Where config().n_recalled > 0: bytes of a stream's FrameMemory, and one in such memory (64-byte aligned), which the
  // caller keeps as long as it and the encoder.
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
  // Checks the metadata, binds every tensor (a missing or an unknown one is an error that names it) and prepares the
  // weights in `backend`; bytes go to `ledger` under kWeights.
  Result<std::unique_ptr<Encoder>> (*load)(const GgufFile& file, Backend& backend, Ledger& ledger);
  // Works on what its operations made with loops of its own: it needs a backend whose memory is the host's.
  bool host_only = false;
};

// What `load` does for a class E with a constructor E(Backend&) and a Status Load(const GgufFile&, Ledger&).
template <class E>
Result<std::unique_ptr<Encoder>> LoadEncoderAs(const GgufFile& file, Backend& backend, Ledger& ledger) {
  auto encoder = std::make_unique<E>(backend);
  WEIR_RETURN_IF_ERROR(encoder->Load(file, ledger));
  return std::unique_ptr<Encoder>(std::move(encoder));
}

// Every encoder of the folder, sorted by name. (Generated.)
std::span<const EncoderInfo* const> AllEncoderInfos();

// Whether the file says that it is one at all.
bool IsEncoder(const GgufFile& file);
// The encoder of the file's projector. kInvalidArgument when the file is no vision encoder at all, kNotFound when it
// does not even say what it is, kUnsupported names an unknown projector and lists the known ones.
Result<const EncoderInfo*> FindEncoder(const GgufFile& file);
// Finds and loads it. kUnsupported, too, when it is host_only and the backend is a device's.
Result<std::unique_ptr<Encoder>> LoadEncoder(const GgufFile& file, Backend& backend, Ledger& ledger);

// An encoder with the memory it works in: pixels in, rows out, the host's both, whatever the encoder runs on. Its
// buffers are reserved under kVision when it is made; what a picture's size asks for beside them (Preprocess) is
// reserved while that picture is read.
class ImageEncoder {
 public:
  static Result<std::unique_ptr<ImageEncoder>> Make(Encoder& encoder, Ledger& ledger);

  // Bytes that Make() reserves.
  static int64_t Bytes(const Encoder& encoder);

  // Rows of the picture, [n, n_embd]: n_rows of the whole, where the encoder has grids those of the tiles after them,
  // where it cuts pictures into squares those of the squares before them; valid until the next call. Errors of
  // Preprocess().
  // `signals` are those of the whole picture.
  Result<std::span<float>> Encode(const RgbView& image, const VisionObserver* observer = nullptr,
                                  SignalSink* signals = nullptr);
  // Rows of what Preprocess() made, [3, size, size]: without tiles, as frames of a video are looked at.
  std::span<float> EncodePixels(const float* pixels, const VisionObserver* observer = nullptr,
                                SignalSink* signals = nullptr);
  // Takes a frame into a memory, as a picture or as Preprocess() made it. Errors of Preprocess().
  Status TakeFrame(const RgbView& frame, FrameMemory& memory, const VisionObserver* observer = nullptr);
  void TakePixels(const float* pixels, FrameMemory& memory, const VisionObserver* observer = nullptr);
  // What the memory makes of its frames, [n, n_embd]; valid until the next call. REQUIRES: memory.n_rows() > 0.
  std::span<float> Recall(FrameMemory& memory, const VisionObserver* observer = nullptr);
  // What the last picture's or frame's rows are, in order, and the words between them.
  std::span<const PicturePart> parts() const { return parts_; }
  const EncoderConfig& config() const { return encoder_.config(); }

 private:
  ImageEncoder(Encoder& encoder, Ledger& ledger) : encoder_(encoder), ledger_(ledger) {}
  // One input, and what is done is done when it returns.
  void Run(const float* pixels, float* out, const VisionObserver* observer, SignalSink* signals);
  Status EncodeTiles(const RgbView& image, const VisionObserver* observer, int64_t* n_rows);
  Result<std::span<float>> EncodeSquares(const RgbView& image, const VisionObserver* observer, SignalSink* signals);

  Encoder& encoder_;
  Ledger& ledger_;
  Buffer pixels_, rows_, workspace_;
  Buffer tile_;       // [n_rows, n_embd], where there are tiles
  HostBuffer shown_;  // where the encoder runs on a device: what a sink is shown
  std::vector<PicturePart> parts_;
};

}  // namespace weir
