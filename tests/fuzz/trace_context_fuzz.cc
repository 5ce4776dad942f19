// SPDX-License-Identifier: Apache-2.0
// Any traceparent and tracestate of a request: read the same again after they were written, or ignored.
//
// Input: traceparent, a line feed, tracestate.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "serve/trace_context.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  if (const auto context = weir::ParseTraceParent(text.substr(0, end))) {
    const auto again = weir::ParseTraceParent(weir::TraceParentText(*context));
    if (!again || again->trace_id != context->trace_id || again->span_id != context->span_id ||
        again->sampled != context->sampled) {
      std::abort();
    }
  }
  if (end == text.npos) return 0;
  const std::string state = weir::ParseTraceState(text.substr(end + 1));
  if (state.size() > 512 || weir::ParseTraceState(state) != state) std::abort();
  return 0;
}
