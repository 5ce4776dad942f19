// SPDX-License-Identifier: Apache-2.0
// Finds stop strings in a text that arrives piece by piece.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weir {

// Text is held back while it could be the beginning of a stop string, so that output never has to be retracted. Pieces
// end between characters; stop strings are valid UTF-8.
class StopText {
 public:
  // Empty strings are ignored.
  explicit StopText(std::vector<std::string> stops);

  // Appends the text that is certain to *out. Returns true once a stop string is complete: *out then ends before the
  // one that was complete first (of two that end together, the longer), and Push() must not be called again.
  bool Push(std::string_view piece, std::string* out);
  // Call at the end of the text: appends what was held back.
  void Finish(std::string* out);

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

}  // namespace weir
