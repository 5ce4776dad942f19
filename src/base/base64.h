// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4): how JSON carries the bytes of pictures.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

std::string EncodeBase64(std::string_view bytes);

// kInvalidArgument for a character that is not of the alphabet, padding in the wrong place, a last group that no bytes
// encode to. Padding may be left away.
Result<std::string> DecodeBase64(std::string_view text);

}  // namespace weir
