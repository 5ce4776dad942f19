// SPDX-License-Identifier: Apache-2.0
#include "serve/shared_vision.h"

namespace weir {

Result<int64_t> SharedVision::Bytes(const Encoder& encoder, const PrunerSpec& prune, const DecodeOptions& decode) {
  WEIR_ASSIGN_OR_RETURN(const int64_t bytes, PictureEncoder::BytesSetAside(prune, encoder, decode.max_side));
  return bytes + DecodeLanes::Bytes(encoder.config().transform, decode);
}

Result<std::unique_ptr<SharedVision>> SharedVision::Make(Encoder& encoder, const PrunerSpec& prune,
                                                         const DecodeOptions& decode, Ledger& ledger) {
  auto out = std::make_unique<SharedVision>();
  WEIR_ASSIGN_OR_RETURN(out->encoder, PictureEncoder::MakeSetAside(prune, encoder, decode.max_side, ledger));
  WEIR_ASSIGN_OR_RETURN(out->lanes, DecodeLanes::Make(encoder.config().transform, decode, ledger));
  return out;
}

}  // namespace weir
