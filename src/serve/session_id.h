// SPDX-License-Identifier: Apache-2.0
// The ids of stream sessions. Knowing a session's id gives access to it, so ids must not be guessable. The id is also
// the name of the session's file in a handover.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

// "s-" and 128 random bits, with `node` (the server that created the session) between them unless it is empty. kIo if
// the system has no random numbers.
Result<std::string> NewSessionId(const std::string& node);

// Whether a text has the form of a session id and is thus safe as a file name.
bool IsSessionId(std::string_view id);

// The same for a name that a client chose for a new session: long enough not to be guessed, if it is random.
bool IsChosenSessionId(std::string_view id);

}  // namespace weir
