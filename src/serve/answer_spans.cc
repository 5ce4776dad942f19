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

void AddAnswerSpans(const std::string& model, const AnswerRequest& request, const AnswerSummary& summary,
                    const Status& status, const AnswerCourse& course, RequestTrace* trace) {
  trace->CountTokens(summary.n_prompt, summary.n_answer);
  if (!trace->sampled()) return;
  const SpanId id = NewSpanId();
  const std::string operation = IsCompletion(trace->name()) ? "text_completion" : "chat";
  const char* const why = summary.cancelled ? "cancelled" : !status.ok() ? "error" : summary.ended ? "stop" : "length";
  SpanAttributes said = {{"gen_ai.operation.name", operation},
                         {"gen_ai.provider.name", std::string("weir")},
                         {"gen_ai.request.model", model},
                         {"gen_ai.response.model", model},
                         {"gen_ai.request.temperature", static_cast<double>(request.sampler.temperature)},
                         {"gen_ai.request.top_p", static_cast<double>(request.sampler.top_p)},
                         {"gen_ai.request.top_k", static_cast<double>(request.sampler.top_k)},
                         {"gen_ai.usage.input_tokens", summary.n_prompt},
                         {"gen_ai.usage.cache_read.input_tokens", summary.n_cached},
                         {"gen_ai.usage.output_tokens", summary.n_answer},
                         {"gen_ai.response.finish_reasons", std::vector<std::string>{why}},
                         {"weir.tokens.seen", summary.tokens.seen},
                         {"weir.tokens.kept", summary.tokens.kept},
                         {"weir.selections", course.n_selections},
                         {"weir.tokens.evicted", course.n_evicted}};
  if (request.max_tokens >= 0) said.emplace_back("gen_ai.request.max_tokens", request.max_tokens);
  if (summary.recalled) {
    said.emplace_back("weir.recall.passages", static_cast<int64_t>(summary.recalled->passages.size()));
  }
  std::string error;
  if (!status.ok()) {
    error = FromStatus(status).code;
    if (error.empty()) error = "invalid_request";
    said.emplace_back("error.type", error);
  }
  trace->Add(operation + " " + model, course.asked, course.end, std::move(said), id, std::nullopt, std::move(error));
  trace->Add("wait", course.asked, course.begun, {}, NewSpanId(), id);
  trace->Add("read", course.begun, course.first, {{"weir.tokens.read", summary.n_prompt - summary.n_cached}},
             NewSpanId(), id);
  if (summary.n_answer == 0) return;
  trace->Add("write", course.first, course.end, {{"weir.tokens.written", summary.n_answer}}, NewSpanId(), id);
}

}  // namespace weir
