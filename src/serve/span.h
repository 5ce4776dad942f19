// SPDX-License-Identifier: Apache-2.0
// One span of a trace: something that took time, and what is said about it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "serve/trace_context.h"

namespace weir {

// Keys are those of OpenTelemetry's semantic conventions where these have one, and begin with weir. otherwise.
using SpanValue = std::variant<int64_t, double, std::string, std::vector<std::string>>;
using SpanAttributes = std::vector<std::pair<std::string, SpanValue>>;

struct Span {
  enum class Kind { kInternal = 1, kServer = 2 };  // as OTLP numbers them
  std::string name;
  Kind kind = Kind::kInternal;
  TraceId trace_id{};
  SpanId span_id{}, parent_id{};     // zeros: no parent
  std::string state;                 // tracestate
  int64_t begin_ns = 0, end_ns = 0;  // Unix time
  SpanAttributes attributes;
  std::string error;  // why it failed; empty: it did not

  // About what it takes in memory.
  int64_t bytes() const {
    size_t n = sizeof(Span) + name.size() + state.size() + error.size();
    for (const auto& [key, value] : attributes) {
      n += sizeof(SpanAttributes::value_type) + key.size();
      if (const auto* text = std::get_if<std::string>(&value)) n += text->size();
      if (const auto* list = std::get_if<std::vector<std::string>>(&value)) n += 64 * list->size();
    }
    return static_cast<int64_t>(n);
  }
};

}  // namespace weir
