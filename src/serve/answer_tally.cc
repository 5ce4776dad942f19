// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_tally.h"

#include <string>
#include <utility>

#include "serve/held_map.h"

namespace weir {
namespace {

// What was brought back and, where nothing was, why.
void AddRecalled(const Recalled& recalled, const Status& failed, Json* to) {
  Json list = Json::array();
  for (const RecalledPassage& passage : recalled.passages) {
    list.push_back({{"seq", passage.seq},
                    {"end", passage.seq_end},
                    {"t_ms", passage.t_ms},
                    {"score", passage.score},
                    {"text", passage.text}});
  }
  if (list.empty()) {
    (*to)["recall"] = !failed.ok()         ? "failed"
                      : recalled.too_large ? "too_large"
                      : recalled.held      ? "held"
                      : recalled.gated     ? "gate"
                                           : "nothing";
  }
  (*to)["recalled"] = std::move(list);
}

double PerSecond(int64_t n, double ms) { return ms > 0 ? static_cast<double>(n) * 1000 / ms : 0.0; }

Json TimingsJson(int64_t n_held, int64_t n_read, double prompt_ms, int64_t n_answer, double answer_ms) {
  return {{"cache_n", n_held},
          {"prompt_n", n_read},
          {"prompt_ms", prompt_ms},
          {"prompt_per_second", PerSecond(n_read, prompt_ms)},
          {"predicted_n", n_answer},
          {"predicted_ms", answer_ms},
          {"predicted_per_second", PerSecond(n_answer, answer_ms)}};
}

}  // namespace

void AnswerTally::Count(size_t index, const AnswerSummary& summary) {
  if (index % static_cast<size_t>(n_) == 0) {
    n_prompt_ += summary.n_prompt;
    n_cached_ += summary.n_cached;
  }
  n_read_ += summary.n_prompt - summary.n_cached;
  n_held_ += summary.n_cached;
  prompt_ms_ += summary.prompt_ms;
  answer_ms_ += summary.answer_ms;
  n_answer_ += summary.n_answer;
  n_guessed_ += summary.n_guessed;
  n_guessed_right_ += summary.n_guessed_right;
  const SessionCounters& tokens = summary.tokens;
  memory_ = {{"seen", tokens.seen},
             {"kept", tokens.kept},
             {"dropped", tokens.dropped},
             {"pinned", summary.n_pinned},
             {"modalities", ModalitiesJson(tokens, summary.held)},
             {"t_ms", summary.t_ms}};
  if (summary.recalled) AddRecalled(*summary.recalled, summary.recall_failed, &memory_);
  if (summary.rows_pruned) memory_["rows_pruned"] = *summary.rows_pruned;
}

Json AnswerTally::Timings() const {
  Json out = TimingsJson(n_held_, n_read_, prompt_ms_, n_answer_, answer_ms_);
  if (n_guessed_ > 0) {
    out["draft_n"] = n_guessed_;
    out["draft_n_accepted"] = n_guessed_right_;
  }
  return out;
}

Json AnswerTally::TimingsSoFar(const AnswerEvent& event) {
  const int64_t n_read = event.n_prompt - event.n_cached;
  return TimingsJson(event.n_cached, n_read, event.prompt_ms, event.n_answer, event.answer_ms);
}

}  // namespace weir
