// SPDX-License-Identifier: Apache-2.0
// Helpers shared by several routes.
#pragma once

#include <chrono>
#include <string>

#include "io/json.h"
#include "serve/api_error.h"
#include "serve/host.h"
#include "serve/routes/route.h"

namespace weir {

// How often a handler that waits for the engine checks whether its client is still connected.
inline constexpr std::chrono::milliseconds kLookAtClient{100};
// The largest place in a stream that an address may name.
inline constexpr int64_t kMaxSeq = int64_t{1} << 53;

// Whether the client of this thread's request is still connected.
bool ClientWaits();

// The model's entry in /v1/models.
Json ModelJson(const Host& host);

// The error if a session could not be created: 429 if it would fit once another one ends, 400 if it never will;
// otherwise FromStatus().
ApiError AdmissionError(const Host& host, const SessionOptions& options, const Status& status);

// A whole number of the address (`?name=7`), `missing` where it has none. kInvalidArgument, which names it, for
// anything but a number from `least` to `most`.
Result<int64_t> NumberParam(const httplib::Request& http, const char* name, int64_t missing, int64_t least,
                            int64_t most);

// The key of the body's "name" in the store of snapshots; in a folder never a path outside it. The message of
// kInvalidArgument names the field.
Result<std::string> SnapshotKey(const ServerOptions& options, const Json& body);

}  // namespace weir
