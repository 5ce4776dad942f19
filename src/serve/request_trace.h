// SPDX-License-Identifier: Apache-2.0
// The trace of one request: its own span and those of the work that is done for it.
//
// A RequestScope begins it on the request's thread and stands for its time there. Whoever works for the request holds
// the trace; when the last one lets go, its spans are posted and its record is logged.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "serve/metric_family.h"
#include "serve/span.h"
#include "serve/telemetry.h"

namespace weir {

// Thread-safe.
class RequestTrace {
 public:
  static constexpr size_t kMostSpans = 64;  // of one request, besides its own; more are counted

  // The trace of the request that this thread works for; nullptr: none.
  static std::shared_ptr<RequestTrace> Current();

  // `from`: who asked. `telemetry` must outlive it.
  RequestTrace(Telemetry& telemetry, std::string name, const std::optional<TraceContext>& from);
  ~RequestTrace();
  RequestTrace(const RequestTrace&) = delete;
  RequestTrace& operator=(const RequestTrace&) = delete;

  // Of the request's own span.
  const TraceContext& context() const { return context_; }
  // Whether its spans are wanted. Otherwise nothing is kept of what Add() and Say() are given.
  bool sampled() const { return context_.sampled; }
  // For a histogram; nullopt if it is not sampled.
  std::optional<Exemplar> AsExemplar() const;

  // A span below `parent`, or below the request's own.
  void Add(std::string name, Clock::time_point begin, Clock::time_point end, SpanAttributes attributes = {},
           const SpanId& id = NewSpanId(), const std::optional<SpanId>& parent = std::nullopt, std::string error = "");
  // An attribute of the request's own span.
  void Say(const char* key, SpanValue value);
  void CountTokens(int64_t n_prompt, int64_t n_answer);
  // "POST /v1/chat/completions".
  std::string name();

 private:
  friend class RequestScope;
  int64_t UnixNs(Clock::time_point at) const;

  Telemetry& telemetry_;
  const Clock::time_point begin_ = Clock::now();
  const int64_t begin_ns_;
  TraceContext context_;
  std::mutex mutex_;
  Span own_;  // under mutex_, as is the rest
  std::vector<Span> spans_;
  int64_t n_left_out_ = 0;
  Clock::time_point end_ = begin_;
  RequestRecord record_;
  bool forgotten_ = false;
};

// The time that this thread works for a request. Within another one it is a request of its own, below the other's span.
class RequestScope {
 public:
  // Nothing where nobody wants to know.
  RequestScope(Telemetry& telemetry, std::string name, std::optional<TraceContext> from);
  ~RequestScope();
  RequestScope(const RequestScope&) = delete;
  RequestScope& operator=(const RequestScope&) = delete;

  RequestTrace* trace() const { return trace_.get(); }
  // What it turned out to be.
  void SetName(std::string name, bool http);
  void SetStatus(int http);
  void SetSession(std::string_view id);
  // It turned out to be nothing: it is not told.
  void Forget();

 private:
  std::shared_ptr<RequestTrace> trace_, before_;
};

// A part of the request that this thread works for, from here to Add().
class SpanTimer {
 public:
  explicit SpanTimer(const char* name) : name_(name) {}
  void Add(SpanAttributes attributes = {}) const;

 private:
  const char* const name_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace weir
