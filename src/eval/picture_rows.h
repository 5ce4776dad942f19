// Pictures of files as rows for a language model, each decoded and encoded once however many policies look at it.
//
// What is held is the exam's own memory, counted in ledgers of its own: a session that sits the exam has nothing of
// decoders and encoders in its plan, so that policies are compared by what they keep.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/pruned_encoder.h"
#include "media/media.h"
#include "vision/encoder.h"

namespace weir {

// Decoded files. Those that fit are kept, the others are decoded again whenever they are asked for.
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
  Ledger ledger_;  // first of what it counts
  std::map<std::string, Image> kept_;
  Image latest_;
};

// What an encoder makes of them, thinned out by a pruner where one is given.
class PictureRows {
 public:
  // `files` and `encoder` must outlive it. Errors of PrunedEncoder::Make().
  static Result<std::unique_ptr<PictureRows>> Make(PictureFiles& files, Encoder& encoder,
                                                   const std::optional<PrunerSpec>& pruner,
                                                   int64_t most_bytes = PictureFiles::kDefaultBytes);

  // [n, n_embd], valid until the next call. A frame is looked at once, without an encoder's tiles. Errors of
  // DecodeImage() and Preprocess().
  Result<std::span<const float>> Get(const std::string& path, bool is_frame);
  // Rows that a picture may become.
  int32_t max_rows() const;
  // Memory of encoder, pruner and kept rows.
  const Ledger& ledger() const { return ledger_; }

 private:
  PictureRows(PictureFiles& files, Encoder& encoder, int64_t most_bytes)
      : files_(files), encoder_(encoder), most_bytes_(most_bytes) {}
  struct Kept {
    Reservation bytes;
    std::vector<float> rows;
  };

  PictureFiles& files_;
  Encoder& encoder_;
  const int64_t most_bytes_;
  Ledger ledger_;                         // first of what it counts
  std::unique_ptr<ImageEncoder> images_;  // one of the two
  std::unique_ptr<PrunedEncoder> pruned_;
  int64_t kept_bytes_ = 0;
  std::map<std::string, Kept> kept_;
};

}  // namespace weir
