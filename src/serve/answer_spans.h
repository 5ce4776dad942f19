// SPDX-License-Identifier: Apache-2.0
// What a trace says of one answer: a span with OpenTelemetry's attributes of generative models, and below it the wait
// for the engine, the reading of the prompt and the writing of the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "engine/session.h"
#include "serve/request_trace.h"
#include "text/sampler.h"

namespace weir {

struct AnswerCourse {
  Clock::time_point asked, begun, first, end;  // first: its first token; `end` without one
  const SamplerOptions& sampler;
  int64_t max_tokens = -1;  // -1: no limit
  int64_t n_prompt = 0, n_cached = 0, n_answer = 0;
  bool ended = false, cancelled = false;    // AnswerSummary's
  SessionCounters tokens;                   // of the session, after it
  int64_t n_selections = 0, n_evicted = 0;  // meanwhile
  std::optional<int64_t> n_passages;        // that recall brought back; nullopt: without recall
};

// `status`: why there is no (whole) answer.
void AddAnswerSpans(const std::string& model, const AnswerCourse& course, const Status& status, RequestTrace* trace);

}  // namespace weir
