// SPDX-License-Identifier: Apache-2.0
// A template's source -> tokens. Whitespace control is done here, with trim_blocks and lstrip_blocks on, as the
// programs that chat templates are written for set them: a newline right after a tag is dropped, and so are spaces
// before a tag that begins a line; "-" at a tag strips all space on that side, "+" keeps it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weir::jinja {

inline constexpr size_t kMaxNameBytes = 256;

enum class TokenKind { kData, kBlockBegin, kBlockEnd, kPrintBegin, kPrintEnd, kName, kInt, kFloat, kString, kOp, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of kString: with escapes resolved
  int64_t number = 0;
  double real = 0;
  int line = 0;

  bool Is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
  bool IsOp(std::string_view t) const { return Is(TokenKind::kOp, t); }
  bool IsName(std::string_view t) const { return Is(TokenKind::kName, t); }
};

// Ends with a kEnd token. kInvalidArgument names the line.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace weir::jinja
