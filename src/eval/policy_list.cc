// SPDX-License-Identifier: Apache-2.0
#include "eval/policy_list.h"

namespace weir {

std::vector<std::string> SplitPolicyList(std::string_view text) {
  std::vector<std::string> out;
  bool quoted = false, append = false;  // append: the piece continues the policy before it
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ';';
    if (i < text.size()) {
      if (quoted && c == '\\' && i + 1 < text.size()) {
        ++i;
        continue;
      }
      if (c == '"') quoted = !quoted;
      if (quoted || (c != ',' && c != ';')) continue;
    }
    const std::string_view piece = text.substr(begin, i - begin);
    const std::string_view name = piece.substr(0, piece.find_first_of(":\""));
    if (append && name.find('=') != std::string_view::npos) {
      out.back().append(",").append(piece);
    } else if (!piece.empty()) {
      out.emplace_back(piece);
    }
    append = c == ',' && !out.empty() && out.back().find(':') != std::string::npos;
    begin = i + 1;
  }
  return out;
}

}  // namespace weir
