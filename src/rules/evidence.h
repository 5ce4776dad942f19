// SPDX-License-Identifier: Apache-2.0
// What of a stream speaks for an event: the frames and the text, from a place in the stream on, that the pot still
// holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session.h"
#include "io/json.h"
#include "text/tokenizer.h"

namespace weir {

struct RuleEvidence {
  int64_t from_token = 0, to_token = 0;  // the part of the stream that was looked at, by seq
  std::vector<int64_t> frames_ms;        // times of the frames and pictures in it, oldest first; the newest of them
  std::string text;                      // its words, without control tokens; the last of them
};
inline constexpr size_t kMostEvidenceFrames = 32, kMostEvidenceTokens = 128;
inline constexpr size_t kMostEvidenceBytes = 1024;  // of its words: tokens may be long

// Of the tokens from seq `from` on; of those that heads hold differently, what the first group holds.
RuleEvidence FindEvidence(const Session& session, const Tokenizer& tokenizer, int64_t from);
Json ToJson(const RuleEvidence& evidence);

}  // namespace weir
