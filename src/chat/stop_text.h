// SPDX-License-Identifier: Apache-2.0
// Stop strings in a text that arrives piece by piece.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weir {

// Text is held back for as long as it could be the beginning of a stop string, so that what was given out never has to
// be taken back. Pieces end between characters; stop strings are valid UTF-8.
class StopText {
 public:
  // Empty strings stop nothing.
  explicit StopText(std::vector<std::string> stops);

  // Appends to *out what is certain. True when a stop string is complete: *out then ends before the one that was
  // complete first (of two that end together, the longer), and nothing may be pushed any more.
  bool Push(std::string_view piece, std::string* out);
  // The text ended: appends what was held back.
  void Finish(std::string* out);

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace weir
