// SPDX-License-Identifier: Apache-2.0
// A picture as a session reads it: the encoder's rows, and the words of the model's family between them.
#pragma once

#include <span>

#include "engine/session.h"
#include "vision/encoder.h"

namespace weir {

// Reads the output of an encoder of `config`: `rows`, and the words that `parts` name (ImageEncoder::parts()). Errors
// of Session::Append() and AppendEmbeddings(); what was read before the error stays read.
Status AppendParts(const EncoderConfig& config, std::span<const PicturePart> parts, std::span<const float> rows,
                   Modality modality, Session& session, const Session::AppendOptions& append);

}  // namespace weir
