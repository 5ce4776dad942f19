// SPDX-License-Identifier: Apache-2.0
// Several tokens a step: guesses from the text (--lookup) and by a draft model (--draft).
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/loaded_draft.h"
#include "engine/loaded_model.h"
#include "engine/session.h"

namespace weir::app {

struct GuessFlags {
  int lookup = 0;
  std::string draft;  // a file; empty: no draft
  int draft_max = 7, draft_min = 0, draft_pot = 0;
  float draft_sure = 0.3f;
};
// For commands that write answers; they guess from the text by default.
void AddGuessFlags(CLI::App& app, GuessFlags* flags);
// Loads the draft, if there is one, and sets what the flags say about it. It must outlive the session.
Result<std::unique_ptr<LoadedDraft>> LoadDraft(const GuessFlags& flags, LoadedModel& model, SessionOptions* options);
// One line about it to stderr; nothing for nullptr.
void PrintDraft(const LoadedDraft* draft, const SessionPlan& plan);
// ", 45 of 60 guesses right", or nothing.
std::string GuessText(const Session& session);

}  // namespace weir::app
