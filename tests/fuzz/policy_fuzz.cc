// SPDX-License-Identifier: Apache-2.0
// Any text as a policy's name with options, and as a profile: refused, or what it is normalised to means the same.
//
// Input: one byte choosing which of the two, then the text.
#include <cstdlib>
#include <string_view>

#include "policy/policy.h"
#include "policy/profile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    if (text.find("profile") != std::string_view::npos) return 0;  // files are not the matter here
    const auto spec = weir::ParsePolicySpec(text);
    if (!spec.ok()) return 0;
    (void)spec->Make();  // may refuse what no single option tells
    const auto again = weir::ParsePolicySpec(spec->text);
    if (!again.ok() || again->text != spec->text) std::abort();
    for (const weir::PolicyOptionInfo& option : spec->info->options) {
      const auto same = weir::WithOption(*spec, option.key, weir::OptionText(*spec, option));
      if (!same.ok() || same->text != spec->text) std::abort();
    }
    return 0;
  }
  const auto profile = weir::ParseProfile(text, "fuzz");
  if (!profile.ok()) return 0;
  const std::string written = weir::ProfileText(*profile);
  const auto again = weir::ParseProfile(written, "again");
  if (!again.ok() || weir::ProfileText(*again) != written) std::abort();
  return 0;
}
