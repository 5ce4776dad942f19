// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_spans.h"

#include <string>
#include <utility>
#include <vector>

#include "serve/api_error.h"

namespace weir {
namespace {

// Whether a route's answers continue a text, rather than answer a conversation.
bool IsCompletion(const std::string& route) {
  return route == "POST /v1/completions" || route == "POST /infill" || route == "POST /api/generate";
}

}  // namespace

void AddAnswerSpans(const std::string& model, const AnswerCourse& course, const Status& status, RequestTrace* trace) {
  trace->CountTokens(course.n_prompt, course.n_answer);
  if (!trace->sampled()) return;
  const SpanId id = NewSpanId();
  const std::string operation = IsCompletion(trace->name()) ? "text_completion" : "chat";
  const char* const why = course.cancelled ? "cancelled" : !status.ok() ? "error" : course.ended ? "stop" : "length";
  SpanAttributes said = {{"gen_ai.operation.name", operation},
                         {"gen_ai.provider.name", std::string("weir")},
                         {"gen_ai.request.model", model},
                         {"gen_ai.response.model", model},
                         {"gen_ai.request.temperature", static_cast<double>(course.sampler.temperature)},
                         {"gen_ai.request.top_p", static_cast<double>(course.sampler.top_p)},
                         {"gen_ai.request.top_k", static_cast<double>(course.sampler.top_k)},
                         {"gen_ai.usage.input_tokens", course.n_prompt},
                         {"gen_ai.usage.cache_read.input_tokens", course.n_cached},
                         {"gen_ai.usage.output_tokens", course.n_answer},
                         {"gen_ai.response.finish_reasons", std::vector<std::string>{why}},
                         {"weir.tokens.seen", course.tokens.seen},
                         {"weir.tokens.kept", course.tokens.kept},
                         {"weir.selections", course.n_selections},
                         {"weir.tokens.evicted", course.n_evicted}};
  if (course.max_tokens >= 0) said.emplace_back("gen_ai.request.max_tokens", course.max_tokens);
  if (course.n_passages) said.emplace_back("weir.recall.passages", *course.n_passages);
  std::string error;
  if (!status.ok()) {
    error = FromStatus(status).code;
    if (error.empty()) error = "invalid_request";
    said.emplace_back("error.type", error);
  }
  trace->Add(operation + " " + model, course.asked, course.end, std::move(said), id, std::nullopt, std::move(error));
  trace->Add("wait", course.asked, course.begun, {}, NewSpanId(), id);
  trace->Add("read", course.begun, course.first, {{"weir.tokens.read", course.n_prompt - course.n_cached}}, NewSpanId(),
             id);
  if (course.n_answer == 0) return;
  trace->Add("write", course.first, course.end, {{"weir.tokens.written", course.n_answer}}, NewSpanId(), id);
}

}  // namespace weir
