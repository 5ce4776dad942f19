// SPDX-License-Identifier: Apache-2.0
// --otlp and what belongs to it, and the variables of the environment that OpenTelemetry's programs share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "serve/telemetry.h"

namespace weir::app {

struct TelemetryFlags {
  std::string otlp, headers_file, log_format = "text";
  double sample = -1;  // below 0: not given
};
void AddTelemetryFlags(CLI::App& app, TelemetryFlags* flags);

// Flags go before the environment. `node`: the server's name; empty: the machine's. Without a log. kInvalidArgument
// names the flag or the variable, never what it holds.
Result<TelemetryOptions> ToTelemetry(const TelemetryFlags& flags, const std::string& node);

}  // namespace weir::app
