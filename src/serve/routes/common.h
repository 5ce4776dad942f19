// SPDX-License-Identifier: Apache-2.0
// What several routes need.
#pragma once

#include <chrono>
#include <string>

#include "io/json.h"
#include "serve/api_error.h"
#include "serve/host.h"
#include "serve/routes/route.h"

namespace weir {

// How often a handler that waits for the engine looks whether its client still waits for it.
inline constexpr std::chrono::milliseconds kLookAtClient{100};
// Whether the client of the request that this thread handles still waits.
bool ClientWaits();

// The model as /v1/models lists it.
Json ModelJson(const Host& host);

// Why there is no session of that kind: 429 when it could fit after another one went, 400 when it never will; else as
// FromStatus() has it.
ApiError AdmissionError(const Host& host, const SessionOptions& options, const Status& status);

// The file of the body's "name" in the snapshot folder; nothing outside it has a name. kInvalidArgument names the
// field.
Result<std::string> SnapshotPath(const ServerOptions& options, const Json& body);

}  // namespace weir
