// SPDX-License-Identifier: Apache-2.0
// The fields of a request that say what its answer must look like, as OpenAI's, llama.cpp's and vLLM's clients send
// them.
#pragma once

#include <optional>

#include "io/json.h"
#include "text/forms/form.h"

namespace weir {

// response_format, json_schema, grammar, regex, choices; guided_json, guided_regex, guided_choice, guided_grammar;
// structured_outputs. nullopt: none is given, or it asks for text. Two that say different things are an error.
std::optional<FormSpec> GetForm(Fields& fields);

}  // namespace weir
