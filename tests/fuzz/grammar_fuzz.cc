// SPDX-License-Identifier: Apache-2.0
// Any grammar, expression or list of choices becomes a form, or one line that says why not, within bounds.
//
// Input: a byte that says which, then the text. Choices and what starts a form are lines.
#include <sstream>
#include <string_view>

#include "form_walker.h"

namespace {

weir::Result<weir::FormBuilder::Part> PartOf(weir::FormBuilder& builder, uint8_t kind, const std::string& text) {
  if (kind % 4 == 0) return builder.Grammar(text);
  if (kind % 4 == 1) return builder.Regex(text);
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (kind % 4 == 2) return builder.Choices(lines);
  std::vector<weir::FormBuilder::Trigger> triggers;
  if (lines.size() > 6) lines.resize(6);  // more cost time, and find nothing that six do not
  for (const std::string& line : lines) triggers.push_back({line, builder.Text("[" + line + "]")});
  return builder.Triggered(triggers, kind & 8 ? 1 : 0, kind & 16 ? 2 : weir::forms::kNoMax);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weir::FormBuilder builder(weir::FuzzVocab());
  const auto part = PartOf(builder, data[0], std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  if (!part.ok()) {
    weir::CheckOneLine(part.status());
    return 0;
  }
  const auto form = builder.Build(*part);
  if (!form.ok()) {
    weir::CheckOneLine(form.status());
    return 0;
  }
  uint64_t seed = size;
  for (size_t i = 0; i < size; ++i) seed = seed * 31 + data[i];
  (void)weir::WalkForm(*form, seed, 60);
  return 0;
}
