// SPDX-License-Identifier: Apache-2.0
#include "text/picture_marks.h"

#include <string>

namespace weir {

std::vector<std::vector<TextPiece>> SplitAtMark(const std::vector<TextPiece>& pieces, std::string_view mark) {
  std::vector<std::vector<TextPiece>> out(1);
  for (const TextPiece& piece : pieces) {
    size_t from = 0;
    for (size_t at = 0; !piece.parse_special && (at = piece.text.find(mark, from)) != std::string::npos;) {
      if (at > from) out.back().push_back({piece.text.substr(from, at - from), false});
      out.emplace_back();
      from = at + mark.size();
    }
    if (from < piece.text.size()) out.back().push_back({piece.text.substr(from), piece.parse_special});
  }
  return out;
}

}  // namespace weir
