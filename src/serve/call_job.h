// SPDX-License-Identifier: Apache-2.0
// Functions that run on the engine's thread for somebody who waits for them. They are jobs like any other, and go in
// between the steps of those that run. Any thread but the engine's; kCancelled when the engine stops.
#pragma once

#include <functional>
#include <string>

#include "serve/host.h"

namespace weir {

// Runs `fn` as soon as the step that is under way has ended.
Status CallEngine(Host& host, const std::function<Status()>& fn);

// The same for what looks at a session without changing it, though a job may work on it. kNotFound when there is no
// session of that id.
Status LookAtSession(Host& host, const std::string& id, const std::function<void(const StreamSession&)>& fn);

// Waits until nothing works on the session, then runs `fn` with it. kNotFound when there is no session of that id,
// kCancelled when `wanted` (nullptr: always true) says so while it is waited for.
Status CallWithSession(Host& host, const std::string& id, const std::function<Status(StreamSession&)>& fn,
                       const std::function<bool()>& wanted = nullptr);

// Ends a session: a job that works on it is told to end first, and nobody gets the session afterwards. kNotFound when
// there is no session of that id.
Status DeleteSession(Host& host, const std::string& id);

}  // namespace weir
