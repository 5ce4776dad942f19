// SPDX-License-Identifier: Apache-2.0
// W3C Trace Context: who asked, as the headers traceparent and tracestate carry it from one program to the next.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weir {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

struct TraceContext {
  TraceId trace_id{};
  SpanId span_id{};
  bool sampled = false;
  std::string state;  // tracestate; may be empty
};

// nullopt for what the recommendation calls invalid: then a new trace begins, and tracestate is not looked at.
std::optional<TraceContext> ParseTraceParent(std::string_view text);
// The members of a tracestate, as many as fit into 512 bytes; empty if it is invalid.
std::string ParseTraceState(std::string_view text);
// As the header traceparent, and traceresponse of an answer, has it.
std::string TraceParentText(const TraceContext& context);

// A new trace of one span, or a new span of a trace: its ids are random, and `sampled` is the parent's.
TraceContext NewTrace();
SpanId NewSpanId();
// Whether a new trace is one of the share `ratio` that is sampled; the same on every server.
bool InSample(const TraceId& id, double ratio);

// In hexadecimal digits.
std::string IdText(const TraceId& id);
std::string IdText(const SpanId& id);

}  // namespace weir
