// SPDX-License-Identifier: Apache-2.0
#include "serve/telemetry.h"

#include <algorithm>

#include "serve/session_id.h"

namespace weir {

Result<std::unique_ptr<Telemetry>> Telemetry::Make(const TelemetryOptions& options, Ledger& ledger) {
  if (!(options.sample_ratio >= 0 && options.sample_ratio <= 1)) {
    return InvalidArgument("--trace-sample {}: expected a share from 0 to 1", options.sample_ratio);
  }
  std::unique_ptr<Telemetry> out(new Telemetry(options));
  if (!options.otlp.endpoint.empty()) {
    WEIR_ASSIGN_OR_RETURN(out->exporter_, OtlpExporter::Make(options.otlp, ledger));
  }
  return out;
}

std::string SessionLabel(std::string_view id) {
  constexpr size_t kShown = 6;
  if (!IsSessionId(id)) return "";
  // "s-NODE-RANDOM"; a name that a client chose may have hyphens anywhere.
  const size_t hyphen = id.find('-', 2);
  const size_t begin = hyphen != id.npos && id.size() - hyphen == 33 ? hyphen + 1 : 2;
  return std::string(id.substr(0, std::min(begin + kShown, id.size())));
}

}  // namespace weir
