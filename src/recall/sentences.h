// SPDX-License-Identifier: Apache-2.0
// Where sentences end: at a full stop that is not a title's ("Mr."), exclamation or question mark, at an empty line,
// and at the end of a short line, which is an entry of a list, a record or a verse: prose that was broken into lines
// fills them.
#pragma once

#include <cstddef>
#include <string_view>

namespace weir {

// Whether a sentence ends with the character whose last byte is at `at`. `from_line`: the text begins where a line
// does.
bool EndsSentence(std::string_view text, size_t at, bool from_line = false);
// A quick test: false for most characters that end none.
inline bool MayEndSentence(char c) {
  return c == '.' || c == '!' || c == '?' || c == '\n' || static_cast<unsigned char>(c) >= 0x80;
}
// Where the sentence that goes on at `at` begins; `at` if none begins before it.
size_t SentenceStart(std::string_view text, size_t at);
// The end of the sentence that goes on before `at`, its quotation mark included; `at` if none ends behind it.
size_t SentenceEnd(std::string_view text, size_t at, bool from_line = false);

}  // namespace weir
