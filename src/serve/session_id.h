// SPDX-License-Identifier: Apache-2.0
// The ids of stream sessions. Whoever knows a session's id may talk to it, so that an id must not be guessable; it also
// names the session's file where sessions are handed over.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

// "s-" and 128 random bits, with `node` between them where that is not empty: which of several servers made the
// session. kIo when the system gives no random numbers.
Result<std::string> NewSessionId(const std::string& node);

// Whether a text looks like the id of a session, so that it may name a file.
bool IsSessionId(std::string_view id);

}  // namespace weir
