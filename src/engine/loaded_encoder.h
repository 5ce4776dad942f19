// SPDX-License-Identifier: Apache-2.0
// A vision encoder for a loaded model.
#pragma once

#include <memory>
#include <string>

#include "base/ledger.h"
#include "base/status.h"
#include "engine/loaded_model.h"
#include "vision/encoder.h"

namespace weir {

// A loaded `mmproj` file: mapped, checked, weights prepared in the language model's backend, or in a CPU backend next
// to a device if the encoder needs that (EncoderInfo::host_only). Shared by all sessions.
class LoadedEncoder {
 public:
  // kInvalidArgument if the file is not an encoder, its rows are not as wide as the model's embeddings, or the model's
  // vocabulary lacks the encoder's words around pictures; errors of LoadEncoder(). `model` must outlive it.
  static Result<std::unique_ptr<LoadedEncoder>> Load(const std::string& path, LoadedModel& model);

  Encoder& encoder() const { return *encoder_; }
  const GgufFile& file() const { return *file_; }
  // The file's name for its model, or its path.
  const std::string& name() const;
  // Bytes of the prepared weights.
  const Ledger& ledger() const { return ledger_; }

 private:
  LoadedEncoder() = default;
  Ledger ledger_;  // first: outlives the weights
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Encoder> encoder_;
};

}  // namespace weir
