// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4): the encoding of picture bytes in JSON.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

std::string EncodeBase64(std::string_view bytes);

// kInvalidArgument for a character outside the alphabet, misplaced padding, or a last group that no bytes encode to.
// Padding is optional.
Result<std::string> DecodeBase64(std::string_view text);

}  // namespace weir
