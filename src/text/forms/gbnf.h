// SPDX-License-Identifier: Apache-2.0
// Grammars in llama.cpp's notation (GBNF, its grammars/README.md).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "text/forms/form_vocab.h"
#include "text/forms/network.h"

namespace weir::forms {

// Adds the grammar's rules and returns `root`. kInvalidArgument names the line. `vocab`: where <token> is looked up.
Result<int32_t> AddGrammar(std::string_view text, const FormVocab& vocab, NetworkBuilder* network);

}  // namespace weir::forms
