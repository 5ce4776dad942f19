// SPDX-License-Identifier: Apache-2.0
// An answer taken apart: what the user is told, what the model thought before, and the tools it calls.
#pragma once

#include <string>
#include <vector>

namespace weir {

// What is new in an answer, in the order in which the model wrote it. Parts of one kind that follow one another are one
// text.
struct AnswerPart {
  enum class Kind {
    kContent,
    kReasoning,
    kCall,       // a call begins: `text` is the tool's name. Its arguments follow
    kArguments,  // the next piece of the JSON object of the last call's arguments
  };
  Kind kind = Kind::kContent;
  std::string text;
  std::string id;  // of a call
};

}  // namespace weir
