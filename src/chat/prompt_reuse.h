// SPDX-License-Identifier: Apache-2.0
// Prefix reuse: which free answer pot reads a prompt, and how much of the prompt it already holds.
//
// A chat sends its whole history with every turn. A pot still holds what its last request read. If the new prompt
// begins with the same tokens, the pot keeps that prefix, as far as the answer stays byte for byte that of an empty pot
// (Session::RewindPoint()).
#pragma once

#include <cstdint>
#include <span>

#include "engine/session.h"

namespace weir {

struct PromptPart;

struct PotChoice {
  size_t index = 0;
  int64_t n_tokens = 0;  // of the prompt, to be kept by Session::Rewind()
};

// Returns the pot that holds the longest prefix of the prompt. If that is less than half of what the pot could reuse,
// the pot is left to its own conversation, which merely has the same beginning (a system message), and the least
// recently used pot is returned. An empty prompt matches no pot. free: at least one pot, least recently used first.
PotChoice ChoosePot(std::span<Session* const> free, std::span<const PromptPart> prompt);

}  // namespace weir
