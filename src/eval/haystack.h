// SPDX-License-Identifier: Apache-2.0
// Endless filler text to hide things in: the sentences of a file in a loop, or generated prose.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/rng.h"

namespace weir {

class Haystack {
 public:
  // Generated sentences of 6 to 14 words. The same seed gives the same sentences on every machine.
  static Haystack Prose(uint64_t seed);
  // Sentences of `text`, which must outlive the object, from the first sentence that begins at or after byte `start`
  // (modulo its size) and round again. An empty text gives prose.
  static Haystack Of(std::string_view text, uint64_t start);

  // The next sentence with the white space after it. In a text a sentence ends at a period, question or exclamation
  // mark before white space, or after 600 bytes; never inside a character.
  std::string Next();
  // Sentences until they have at least n_bytes bytes.
  std::string NextBytes(int64_t n_bytes);

 private:
  Haystack(std::string_view text, uint64_t seed) : text_(text), rng_(seed) {}
  std::string_view text_;
  size_t at_ = 0;
  Rng rng_;
};

}  // namespace weir
