// SPDX-License-Identifier: Apache-2.0
// Which tokens a pot holds after each distillation, beside those that scoring everything at once would keep (InfiniPot
// section 3.4, figures 2 and 3).
//
// Each trial reads a text into the pot under test. Whenever the pot has just shrunk, to C slots and after N tokens, a
// second session with room for all N tokens reads the same and shrinks once, to C slots: global scoring. Nothing is
// asked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "engine/session.h"
#include "eval/suite.h"
#include "text/tokenizer.h"

namespace weir {

struct HitsOptions {
  std::string_view text;  // outlives the run; empty: made-up prose
  int32_t n = 4;          // trials: places in the text
  uint64_t seed = 0;
  int32_t n_cycles = 6;  // selections of each trial
};

// A session that is full after n_tokens tokens and then keeps n_keep of them. Both sessions of a trial were made with
// SessionOptions::nll.
using MakeGlobal = std::function<Result<std::unique_ptr<Session>>(int32_t n_tokens, int32_t n_keep)>;

// One cell per cycle, in the order of cycles: `cycle`, and the hit rate, the share of global scoring's tokens that the
// pot holds, mean over layers and KV heads; its error is over trials. Beside it:
//   held         slots of a head after the selection
//   tokens_read  N
//   overlap      share of a head's tokens that another head of the layer holds too, mean over pairs; absent with one
//                head
//   nll          summed -log P, when they were read, of the tokens that a head holds
//   nll_global   the same of global scoring
// kInvalidArgument: a policy that never selects, or no trials.
Status RunHits(Session& session, const Tokenizer& tokenizer, const MakeGlobal& make_global, const HitsOptions& options,
               const std::atomic<bool>* stop, const SuiteHooks& hooks);

}  // namespace weir
