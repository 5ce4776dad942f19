// SPDX-License-Identifier: Apache-2.0
#include "guesses.h"

#include <fmt/core.h>
#include <cstdio>

#include "common.h"
#include "print.h"

namespace weir::app {

void AddGuessFlags(CLI::App& app, GuessFlags* flags) {
  flags->lookup = 7;
  app.add_option("--lookup", flags->lookup,
                 "guess up to N tokens of an answer from what was read and written before, and read them in one pass "
                 "where that saves time; answers stay the same; 0 = off")
      ->check(Between(0, 64))
      ->capture_default_str()
      ->type_name("N");
  // main.cc expands -md.
  CLI::Option* const draft =
      app.add_option("--draft,--model-draft", flags->draft,
                     "(-md) a smaller model with the same vocabulary that guesses where --lookup finds nothing; "
                     "answers stay the same. Its pot is part of the session's bytes")
          ->check(NotEmpty())
          ->type_name("FILE");
  app.add_option("--draft-max,--draft-n", flags->draft_max, "with --draft: guesses at once, at most")
      ->check(Between(1, 64))
      ->capture_default_str()
      ->needs(draft)
      ->type_name("N");
  app.add_option("--draft-min,--draft-n-min", flags->draft_min, "with --draft: fewer guesses than this are not used")
      ->check(Between(0, 64))
      ->capture_default_str()
      ->needs(draft)
      ->type_name("N");
  app.add_option("--draft-p-min", flags->draft_sure,
                 "with --draft: it goes on guessing while it gives a token at least this probability")
      ->check(Between(0.0f, 1.0f))
      ->capture_default_str()
      ->needs(draft)
      ->type_name("P");
  app.add_option("--draft-pot,--ctx-size-draft", flags->draft_pot,
                 "with --draft: tokens of its own pot, the newest ones; default: 1024, or the context it was trained "
                 "with")
      ->check(Between(1, 1 << 20))
      ->needs(draft)
      ->type_name("TOKENS");
}

Result<std::unique_ptr<LoadedDraft>> LoadDraft(const GuessFlags& flags, LoadedModel& model, SessionOptions* options) {
  if (flags.draft.empty()) return std::unique_ptr<LoadedDraft>();
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<LoadedDraft> draft, LoadedDraft::Load(flags.draft, model));
  options->draft = {.model = &draft->model(),
                    .most = flags.draft_max,
                    .least = flags.draft_min,
                    .sure = flags.draft_sure,
                    .pot_slots = flags.draft_pot};
  return draft;
}

void PrintDraft(const LoadedDraft* draft, const SessionPlan& plan) {
  if (draft == nullptr) return;
  Print(stderr, "draft    {}, weights {}, pot of {} tokens, up to {} guesses at once\n", Printable(draft->name()),
        BytesText(draft->ledger().used_bytes()), plan.draft.pot.n_slots, plan.draft.most);
}

std::string GuessText(const Session& session) {
  if (session.n_guessed() == 0) return {};
  std::string out = fmt::format(", {} of {} guesses right", session.n_guessed_right(), session.n_guessed());
  if (session.n_drafted() > 0) {
    out += fmt::format(" ({} of {} by the draft)", session.n_drafted_right(), session.n_drafted());
  }
  return out;
}

}  // namespace weir::app
