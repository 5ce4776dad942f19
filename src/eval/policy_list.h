// SPDX-License-Identifier: Apache-2.0
// Several policies in one text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weir {

// "a;b:x=1,y=2;c" or, where it is not ambiguous, "a,b:x=1,y=2,c": a piece of the form key=value belongs to the policy
// before it. Nothing is split inside double quotes. Empty pieces are left out; names are not checked.
std::vector<std::string> SplitPolicyList(std::string_view text);

}  // namespace weir
