// SPDX-License-Identifier: Apache-2.0
#include "engine/loaded_encoder.h"

#include <utility>
#include <vector>

#include "engine/reads_pictures.h"

namespace weir {
namespace {

// The encoder's words in the model's vocabulary.
Result<std::vector<std::vector<int32_t>>> WordTokens(const PictureWords& words, const std::string& path,
                                                     const LoadedModel& model) {
  std::vector<std::vector<int32_t>> out;
  for (const std::string& text : words.text) {
    const TextPiece piece = {text, true};
    out.push_back(model.tokenizer().EncodePieces({&piece, 1}, false));
    if (out.size() == 1 && out.front().size() != 1) {
      return InvalidArgument("{} has no token {}, which pictures of {} need: they do not belong together",
                             model.file().path(), text, path);
    }
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<LoadedEncoder>> LoadedEncoder::Load(const std::string& path, LoadedModel& model) {
  if (const std::string why = WhyNoPictures(model.model().config(), model.backend()); !why.empty()) {
    return Unsupported("{}; run this model with pictures on the CPU", why);
  }
  std::unique_ptr<LoadedEncoder> out(new LoadedEncoder);
  WEIR_ASSIGN_OR_RETURN(out->file_, GgufFile::Open(path));
  WEIR_ASSIGN_OR_RETURN(const EncoderInfo* info, FindEncoder(*out->file_));
  Backend& backend = info->host_only ? model.host_backend() : model.backend();
  WEIR_ASSIGN_OR_RETURN(out->encoder_, LoadEncoder(*out->file_, backend, out->ledger_));
  const int32_t rows = out->encoder_->config().n_embd, wanted = model.model().config().row_width();
  if (rows != wanted) {
    return InvalidArgument("{} makes rows of {} numbers, {} reads rows of {}: they do not belong together", path, rows,
                           model.file().path(), wanted);
  }
  WEIR_ASSIGN_OR_RETURN(std::vector<std::vector<int32_t>> words,
                        WordTokens(out->encoder_->config().words, path, model));
  out->encoder_->SetWordTokens(std::move(words));
  return out;
}

const std::string& LoadedEncoder::name() const {
  const std::string& name = encoder_->config().name;
  return name.empty() ? file_->path() : name;
}

}  // namespace weir
