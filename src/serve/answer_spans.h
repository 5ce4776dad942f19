// SPDX-License-Identifier: Apache-2.0
// What a trace says of one answer: a span with OpenTelemetry's attributes of generative models, and below it the wait
// for the engine, the reading of the prompt and the writing of the answer.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "serve/answer_job.h"
#include "serve/request_trace.h"

namespace weir {

struct AnswerCourse {
  Clock::time_point asked, begun, first, end;  // first: its first token; `end` without one
  int64_t n_selections = 0, n_evicted = 0;     // meanwhile
};

void AddAnswerSpans(const std::string& model, const AnswerRequest& request, const AnswerSummary& summary,
                    const Status& status, const AnswerCourse& course, RequestTrace* trace);

}  // namespace weir
