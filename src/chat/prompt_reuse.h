// SPDX-License-Identifier: Apache-2.0
// Which free answer pot reads a prompt, and how much of the prompt stands in it already.
//
// A chat sends its whole history with every turn. A pot still holds what its last request read; when the new prompt
// begins with the same tokens, reading goes on from there, as far as the answer is that of an empty pot, byte for byte
// (Session::RewindPoint()).
#pragma once

#include <cstdint>
#include <span>

#include "engine/session.h"

namespace weir {

struct PromptPart;

struct PotChoice {
  size_t index = 0;
  int64_t n_tokens = 0;  // of the prompt, that Session::Rewind() is to keep
};

// free: at least one, the longest unused first. The pot that holds the most of the prompt, unless that is less than
// half of what could be gone on from: it is left to the conversation it belongs to, which merely begins alike (a system
// message), and the longest unused one is taken. An empty prompt stands nowhere.
PotChoice ChoosePot(std::span<Session* const> free, std::span<const PromptPart> prompt);

}  // namespace weir
