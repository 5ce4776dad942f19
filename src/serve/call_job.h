// SPDX-License-Identifier: Apache-2.0
// Blocking calls that run a function on the engine's thread. They are ordinary jobs and run between the steps of other
// jobs. Any thread but the engine's; kCancelled if the engine stops.
#pragma once

#include <functional>
#include <string>

#include "serve/host.h"

namespace weir {

// Runs `fn` as soon as the current step has ended.
Status CallEngine(Host& host, const std::function<Status()>& fn);

// The same for a function that reads a session without changing it, even while a job works on it. kNotFound if there is
// no session of that id.
Status LookAtSession(Host& host, const std::string& id, const std::function<void(const StreamSession&)>& fn);

// Waits until no job works on the session, then runs `fn` with it. kNotFound if there is no session of that id,
// kCancelled if `wanted` (nullptr: always true) returns false while it waits.
Status CallWithSession(Host& host, const std::string& id, const std::function<Status(StreamSession&)>& fn,
                       const std::function<bool()>& wanted = nullptr);

// Waits as CallWithSession() does, and runs `fn`, which does not change the session. With `hold`, if fn returned ok,
// the session stays busy: its caller ends it, or frees it with FreeSession().
Status CallToStore(Host& host, const std::string& id, bool hold, const std::function<Status(StreamSession&)>& fn);
Status FreeSession(Host& host, const std::string& id);

// Ends a session: first cancels the job that works on it, and prevents any further use. kNotFound if there is no
// session of that id.
Status DeleteSession(Host& host, const std::string& id);

// The same for a session that lives on elsewhere.
Status DropSession(Host& host, const std::string& id);

}  // namespace weir
