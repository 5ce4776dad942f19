// SPDX-License-Identifier: Apache-2.0
#include "chat/question_form.h"

namespace weir {

std::string PutQuestion(std::string_view form, std::string_view question) {
  std::string out;
  size_t from = 0;
  for (size_t at; (at = form.find(kQuestionMark, from)) != std::string_view::npos; from = at + kQuestionMark.size()) {
    out += form.substr(from, at - from);
    out += question;
  }
  return out.append(form.substr(from));
}

}  // namespace weir
