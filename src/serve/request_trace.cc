// SPDX-License-Identifier: Apache-2.0
#include "serve/request_trace.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace weir {
namespace {

thread_local std::shared_ptr<RequestTrace> current_trace;

int64_t CountNs(std::chrono::nanoseconds time) { return time.count(); }

}  // namespace

std::shared_ptr<RequestTrace> RequestTrace::Current() { return current_trace; }

RequestTrace::RequestTrace(Telemetry& telemetry, std::string name, const std::optional<TraceContext>& from)
    : telemetry_(telemetry), begin_ns_(CountNs(std::chrono::system_clock::now().time_since_epoch())) {
  context_ = NewTrace();
  if (from) {
    context_.trace_id = from->trace_id;
    context_.sampled = from->sampled;
    context_.state = from->state;
    own_.parent_id = from->span_id;
  } else {
    context_.sampled = telemetry.exporter() != nullptr && InSample(context_.trace_id, telemetry.options().sample_ratio);
  }
  record_.name = std::move(name);
}

RequestTrace::~RequestTrace() {
  if (forgotten_) return;
  if (context_.sampled && telemetry_.exporter() != nullptr) {
    own_.name = record_.name;
    own_.trace_id = context_.trace_id;
    own_.span_id = context_.span_id;
    own_.state = context_.state;
    own_.begin_ns = begin_ns_;
    own_.end_ns = UnixNs(end_);
    if (n_left_out_ > 0) own_.attributes.emplace_back("weir.spans_left_out", n_left_out_);
    spans_.push_back(std::move(own_));
    telemetry_.exporter()->Post(std::move(spans_));
  }
  if (telemetry_.options().log == nullptr) return;
  record_.seconds = Seconds(end_ - begin_);
  record_.trace_id = IdText(context_.trace_id);
  record_.span_id = IdText(context_.span_id);
  record_.sampled = context_.sampled;
  telemetry_.options().log(record_);
}

int64_t RequestTrace::UnixNs(Clock::time_point at) const { return begin_ns_ + CountNs(at - begin_); }

std::optional<Exemplar> RequestTrace::AsExemplar() const {
  if (!sampled()) return std::nullopt;
  return Exemplar{IdText(context_.trace_id), IdText(context_.span_id), 0, UnixNs(Clock::now())};
}

void RequestTrace::Add(std::string name, Clock::time_point begin, Clock::time_point end, SpanAttributes attributes,
                       const SpanId& id, const std::optional<SpanId>& parent, std::string error) {
  if (!sampled() || telemetry_.exporter() == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  end_ = std::max(end_, end);
  if (spans_.size() >= kMostSpans) {
    ++n_left_out_;
    return;
  }
  spans_.push_back({.name = std::move(name),
                    .trace_id = context_.trace_id,
                    .span_id = id,
                    .parent_id = parent.value_or(context_.span_id),
                    .state = context_.state,
                    .begin_ns = UnixNs(begin),
                    .end_ns = UnixNs(end),
                    .attributes = std::move(attributes),
                    .error = std::move(error)});
}

void RequestTrace::Say(const char* key, SpanValue value) {
  if (!sampled()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (own_.attributes.size() < kMostSpans) own_.attributes.emplace_back(key, std::move(value));
}

void RequestTrace::CountTokens(int64_t n_prompt, int64_t n_answer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  record_.n_prompt += n_prompt;
  record_.n_answer += n_answer;
}

std::string RequestTrace::name() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return record_.name;
}

RequestScope::RequestScope(Telemetry& telemetry, std::string name, std::optional<TraceContext> from) {
  if (!telemetry.on()) return;
  before_ = current_trace;
  if (!from && before_ != nullptr) from = before_->context();
  trace_ = std::make_shared<RequestTrace>(telemetry, std::move(name), from);
  current_trace = trace_;
}

RequestScope::~RequestScope() {
  if (trace_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(trace_->mutex_);
    trace_->end_ = std::max(trace_->end_, Clock::now());
  }
  current_trace = std::move(before_);
}

void RequestScope::SetName(std::string name, bool http) {
  if (trace_ == nullptr) return;
  const size_t space = name.find(' ');
  if (http && space != name.npos) {
    trace_->Say("http.request.method", name.substr(0, space));
    trace_->Say("http.route", name.substr(space + 1));
  }
  const std::lock_guard<std::mutex> lock(trace_->mutex_);
  trace_->record_.name = std::move(name);
}

void RequestScope::SetStatus(int http) {
  if (trace_ == nullptr) return;
  trace_->Say("http.response.status_code", int64_t{http});
  if (http >= 500) trace_->Say("error.type", std::to_string(http));
  const std::lock_guard<std::mutex> lock(trace_->mutex_);
  trace_->own_.kind = Span::Kind::kServer;
  if (http >= 500) trace_->own_.error = "HTTP " + std::to_string(http);
  trace_->record_.status = http;
}

void RequestScope::SetSession(std::string_view id) {
  if (trace_ == nullptr || id.empty()) return;
  std::string label = SessionLabel(id);
  trace_->Say("gen_ai.conversation.id", label);
  const std::lock_guard<std::mutex> lock(trace_->mutex_);
  trace_->record_.session = std::move(label);
}

void RequestScope::Forget() {
  if (trace_ == nullptr) return;
  const std::lock_guard<std::mutex> lock(trace_->mutex_);
  trace_->forgotten_ = true;
}

void SpanTimer::Add(SpanAttributes attributes) const {
  if (current_trace != nullptr) current_trace->Add(name_, begin_, Clock::now(), std::move(attributes));
}

}  // namespace weir
