// SPDX-License-Identifier: Apache-2.0
// Answers of a chat that are held to a form: thoughts, which are free, and then words of a form that the caller asks
// for, or calls of tools as the model's dialect writes them, with arguments under the tools' schemas.
//
// An answer may call tools unless it must: it is then free text, in which a call that was begun is held to its end.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "io/json.h"
#include "text/answer_reader.h"
#include "text/forms/form.h"

namespace weir {

struct HeldAnswer {
  Json tools = Json::array();                       // in the OpenAI API's form, checked; empty: nothing is called
  bool must = false;                                // the answer is one or more calls
  std::set<std::string, std::less<>> only, strict;  // of these tools; empty: of any. And tools that are strict
  bool parallel = true;                             // more than one call
  std::optional<FormSpec> words;                    // what an answer without calls looks like
  bool in_thoughts = false;                         // the prompt has opened them
  bool may_think = true;                            // the answer may begin with thoughts of its own
  bool begun = false;  // the prompt contains the answer's beginning, which the form's state reads first
};

// A strict tool is held to its whole schema: kInvalidArgument, in one line, where that cannot be done. Of other tools'
// schemas what cannot be held is left out.
// REQUIRES: there are tools or words. `room` and its errors: as in text/forms/form.h.
Result<std::shared_ptr<const Form>> MakeForm(const HeldAnswer& answer, const AnswerForm& reading,
                                             std::shared_ptr<const FormVocab> vocab,
                                             std::shared_ptr<FormRoom> room = nullptr);

}  // namespace weir
