// SPDX-License-Identifier: Apache-2.0
// What a host is made of.
#pragma once

#include <cstdint>
#include <string>

#include "engine/loaded_encoder.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "prune/pruner.h"
#include "serve/decode_lanes.h"

namespace weir {

struct HostOptions {
  SessionOptions session;     // of whatever asks for nothing else; probe is filled in by the host
  std::string chat_template;  // name; empty: the file's
  std::string model_name;     // what /v1/models says
  int answer_pots = 2;
  bool cache_prompt = true;  // prompts go on from what an answer pot still holds (chat/prompt_reuse.h)
  int max_together = 8;      // answers that are written in one forward pass; 1: each by itself
  int max_waiting = 256;     // jobs
  int64_t budget_bytes = 0;  // of all sessions and what they share; 0: as much as answer_pots + 8 default sessions need
  LoadedEncoder* encoder = nullptr;  // nullptr: no pictures. Outlives the host
  PrunerSpec prune;                  // what thins out the rows of every picture and frame
  DecodeOptions decode;
  std::string node;        // part of every session's id: which of several servers made it. Letters, digits
  int frames_waiting = 4;  // of a session's live video, where its request says nothing
};

}  // namespace weir
