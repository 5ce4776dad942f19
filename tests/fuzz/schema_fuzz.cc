// SPDX-License-Identifier: Apache-2.0
// Any schema becomes a form, or one line that says why not, within bounds; what is written under its masks is JSON.
#include <string_view>

#include "form_walker.h"
#include "io/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weir::FormSpec spec;
  spec.text.assign(reinterpret_cast<const char*>(data), size);
  const auto form = weir::MakeForm(spec, weir::FuzzVocab());
  if (!form.ok()) {
    weir::CheckOneLine(form.status());
    return 0;
  }
  uint64_t seed = size;
  for (size_t i = 0; i < size; ++i) seed = seed * 31 + data[i];
  const std::string answer = weir::WalkForm(*form, seed, 60);
  if (!answer.empty() && !weir::Json::accept(answer)) std::abort();
  return 0;
}
