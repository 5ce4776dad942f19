// SPDX-License-Identifier: Apache-2.0
// --session FILE of `run` and `chat`, /save and /load: a session that outlives the program.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "answer.h"
#include "chat/conversation.h"
#include "chat/session_file.h"
#include "common.h"

namespace weir::app {

struct SavedSession {
  SessionNote note;
  std::unique_ptr<SnapshotReader> file;
};

// nullopt when there is no such file yet. Errors of SnapshotReader::Open() and SessionNote::Parse().
Result<std::optional<SavedSession>> ReadSaved(const std::string& path);

void AddSessionFlag(CLI::App& sub, std::string* path);
// kInvalidArgument for flags that only apply to a new session.
Status CheckGoesOn(const CLI::App& sub, const std::string& path);
// Sets the flags that the user did not give to the saved session's values: recall's too, but for its folder.
void Adopt(const CLI::App& sub, const SessionNote& note, PotFlags* flags);

// Restores setup.session, its archive up to where the session was saved, and the sampler; a seed given by the user
// (`own_seed`) takes precedence over the saved draws. The message of kInvalidArgument says how the file and the session
// differ; session and sampler are then unchanged. If reading the file fails, or a trace cannot continue from it,
// neither can be used. Closes the file.
Status RestoreSaved(SavedSession& saved, const std::string& path, bool own_seed, const Setup& setup, Sampler* sampler);

// `conversation`: Conversation::Save(), or null for a text without rounds. `before`: what the session goes on from;
// nullptr: it is new. What only a server uses of it, rules and the time of its stream, is kept.
Status WriteSaved(const std::string& path, const Setup& setup, const PotFlags& flags, Json conversation,
                  const Sampler& sampler, const SessionNote* before);

}  // namespace weir::app
