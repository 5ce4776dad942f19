// SPDX-License-Identifier: Apache-2.0
// What a host is made of.
#pragma once

#include <cstdint>
#include <string>

#include "engine/loaded_encoder.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "prune/pruner.h"
#include "recall/stream_recall.h"
#include "serve/decode_lanes.h"
#include "serve/mqtt_publisher.h"
#include "serve/telemetry.h"
#include "serve/webhook_sender.h"
#include "text/forms/form_room.h"

namespace weir {

struct HostOptions {
  SessionOptions session;      // the default options; the host fills in the probe
  std::string chat_template;   // a name or a program's text; empty: the file's
  std::string chat_arguments;  // a JSON object that the program is given
  std::string model_name;      // name in /v1/models
  int answer_pots = 2;
  bool cache_prompt = true;  // prompts reuse the prefix that an answer pot still holds (chat/prompt_reuse.h)
  int max_together = 8;      // answers whose tokens share one forward pass; 1: no sharing
  int max_waiting = 256;     // jobs
  int64_t budget_bytes = 0;  // for all sessions and what they share; 0: what answer_pots + 8 default sessions need
  LoadedEncoder* encoder = nullptr;  // nullptr: no pictures. Outlives the host
  RecallOptions recall;              // of stream sessions, if their request does not say; `dir`: of all archives
  int64_t recall_disk_total = 0;     // bytes of disk for the archives of all sessions; 0: sessions have no recall
  std::string snapshots;             // where snapshots and handed-over sessions are, which own archives; may be empty
  int64_t store_bytes = 0;           // of memory for what goes to and from there
  PrunerSpec prune;                  // prunes the rows of every picture and frame
  DecodeOptions decode;
  int64_t form_bytes =
      2 * kDefaultFormBytes;  // for answers that are held to forms, of all requests; part of the budget
  std::string node;           // part of every session's id: the server that created it. Letters, digits
  int frames_waiting = 4;     // of a session's live video, if its request does not say
  WebhookOptions webhooks;
  MqttOptions mqtt;
  TelemetryOptions telemetry;
};

}  // namespace weir
