// SPDX-License-Identifier: Apache-2.0
// What Python's str does, on texts that know their origin. Shared by methods and filters.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/text.h"

namespace weir::jinja {

// str.strip(), lstrip(), rstrip(): of spaces, or of the characters in `chars`.
Text Strip(const Text& text, const std::optional<std::string_view>& chars, bool left, bool right);
// str.replace(). n < 0: all. `limit` bounds the result's cost(); nullopt when it would be larger.
std::optional<Text> Replace(const Text& text, std::string_view from, const Text& to, int64_t n, int64_t limit);
// With the characters that HTML gives a meaning as entities.
Text Escaped(const Text& text);
// str.split() and rsplit(). No separator: at runs of space, which also drops empty parts. n < 0: all.
// REQUIRES: a separator is not empty.
std::vector<Text> Split(const Text& text, const std::optional<std::string_view>& separator, int64_t n, bool from_right);
// str.splitlines().
std::vector<Text> Lines(const Text& text, bool keep_ends);

}  // namespace weir::jinja
