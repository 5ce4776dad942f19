// SPDX-License-Identifier: Apache-2.0
// Text to hide things in: sentences of a file, again and again, or prose that is made up as it is read. Never ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/rng.h"

namespace weir {

class Haystack {
 public:
  // Made-up sentences of 6 to 14 words. The same seed gives the same sentences on every machine.
  static Haystack Prose(uint64_t seed);
  // Sentences of `text`, which must outlive the object, from the first sentence that begins at or after byte `start`
  // (modulo its size) and round again. An empty text gives prose.
  static Haystack Of(std::string_view text, uint64_t start);

  // The next sentence with the white space after it. Of a text: up to a period, question or exclamation mark with white
  // space behind it, at most 600 bytes, never cut inside a character.
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
