// SPDX-License-Identifier: Apache-2.0
// Pictures from files as rows for a language model; each is decoded and encoded once, however many policies are tested
// on it.
//
// Their memory belongs to the exam and is counted in separate ledgers: the plan of a tested session contains no decoder
// or encoder, so that policies are compared by what they keep.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/picture_encoder.h"
#include "media/media.h"
#include "vision/encoder.h"

namespace weir {

// A cache of decoded files. Files that do not fit are decoded again on every request.
class PictureFiles {
 public:
  static constexpr int64_t kDefaultBytes = int64_t{512} << 20;
  explicit PictureFiles(const MediaOptions& media, int64_t most_bytes = kDefaultBytes)
      : media_(media), most_bytes_(most_bytes) {}
  // Valid until the next call. Errors of DecodeImage().
  Result<RgbView> Get(const std::string& path);

 private:
  const MediaOptions media_;
  const int64_t most_bytes_;
  Ledger ledger_;  // declared before what it counts
  std::map<std::string, Image> kept_;
  Image latest_;
};

// A picture as a model reads it: rows, with the encoder's words between them.
struct EncodedPicture {
  std::span<const float> rows;  // [n, n_embd]
  std::span<const PicturePart> parts;
};

// A cache of encoded pictures, pruned if there is a pruner.
class EncodedPictures {
 public:
  // `files` and `encoder` must outlive it. Errors of PictureEncoder::Make().
  static Result<std::unique_ptr<EncodedPictures>> Make(PictureFiles& files, Encoder& encoder, const PrunerSpec& pruner,
                                                       int64_t most_bytes = PictureFiles::kDefaultBytes);

  // Valid until the next call. A frame is encoded whole, without an encoder's tiles and squares. Errors of
  // DecodeImage() and Preprocess().
  Result<EncodedPicture> Get(const std::string& path, bool is_frame);
  // A frame prepared for the encoder, [encoder().n_prepared()], for streams that keep frames together, whose rows
  // depend on several frames. Valid until the next call. Errors of Get().
  Result<const float*> Prepared(const std::string& path);
  // Maximum number of tokens of a picture.
  int32_t max_tokens() const;
  const EncoderConfig& config() const { return encoder_.config(); }
  PictureEncoder& encoder() { return *images_; }
  // Memory of encoder, pruner and kept rows.
  const Ledger& ledger() const { return ledger_; }

 private:
  EncodedPictures(PictureFiles& files, Encoder& encoder, int64_t most_bytes)
      : files_(files), encoder_(encoder), most_bytes_(most_bytes) {}
  struct Kept {
    Reservation bytes;
    std::vector<float> rows;
    std::vector<PicturePart> parts;
  };
  Result<EncodedPicture> Encode(const RgbView& picture, bool is_frame);

  PictureFiles& files_;
  Encoder& encoder_;
  const int64_t most_bytes_;
  Ledger ledger_;  // declared before what it counts
  std::unique_ptr<PictureEncoder> images_;
  HostBuffer pixels_;  // of a frame
  int64_t kept_bytes_ = 0;
  std::map<std::pair<std::string, bool>, Kept> kept_;
};

}  // namespace weir
