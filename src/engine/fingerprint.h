// SPDX-License-Identifier: Apache-2.0
// Numbers that tell models and vocabularies apart, for what is saved on disk. They detect a mistake, not a forgery.
#pragma once

#include <cstdint>

#include "io/gguf.h"
#include "text/tokenizer.h"

namespace weir {

// Of names, shapes and types of all tensors, and the beginning of their data.
uint64_t ModelHash(const GgufFile& file);
// Of the spelling of every token.
uint64_t TokenizerHash(const Tokenizer& tokenizer);

}  // namespace weir
