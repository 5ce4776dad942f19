// SPDX-License-Identifier: Apache-2.0
// Collects the parts of an answer as readers find them.
//
// White space that separates thoughts, content and calls from one another is part of the format and dropped. An answer
// without thoughts and calls loses no byte.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/answer_part.h"

namespace weir {

class PartSink {
 public:
  struct Options {
    bool calls = true;    // there may be calls; otherwise no white space of the content is kept back
    bool single = false;  // only the first call counts, and everything behind it is dropped
    std::function<std::string()> new_id = nullptr;  // makes the ids of calls; without it they are counted
  };
  explicit PartSink(Options options) : options_(std::move(options)) {}

  void Reasoning(std::string_view text);
  void Content(std::string_view text);
  // An empty id: a new one.
  void BeginCall(std::string_view name, std::string_view id = {});
  // REQUIRES: BeginCall() came, and no EndCall() since.
  void Arguments(std::string_view text);
  void EndCall();
  // The answer has ended.
  void Finish();

  std::vector<AnswerPart> Take() { return std::exchange(parts_, {}); }
  // Calls that were begun.
  int n_calls() const { return n_calls_; }
  // The one call that counts is complete.
  bool done() const { return options_.single && n_ended_ > 0; }

 private:
  void Add(AnswerPart::Kind kind, std::string_view text);
  // Adds text without the white space before it, if that is due, and keeps back the white space at its end.
  void AddTrimmed(AnswerPart::Kind kind, std::string_view text);
  void EndReasoning();

  const Options options_;
  std::vector<AnswerPart> parts_;
  std::string space_;        // read, not yet known to be followed by more of the same kind
  bool reasoning_ = false;   // space_ is of thoughts
  bool skip_space_ = false;  // white space before the next text separates it from what came before
  bool empty_call_ = false;  // without arguments yet
  int n_calls_ = 0, n_ended_ = 0;
};

}  // namespace weir
