// SPDX-License-Identifier: Apache-2.0
// The measurement that `weir tune` uses. A trial is
//
//   lines   one stream of named numbers (eval/lines_suite.h), longer than the pot, with questions about
//           lines at distances inside the pot (a quarter and a half of it) and beyond (5/4 of it and twice as much).
//           The figure is the mean NLL of the right number, in nats per token, averaged over the distances: it changes
//           where an accuracy does not yet, and ln 10 is a guess of one digit
//   text    if given: mean NLL of a slice of it, several times as long as the pot, read into an empty pot
//
//   objective = (w_inside inside + w_beyond beyond + w_text text) / (w_inside + w_beyond + w_text)
//
// over the parts that are measured. Smaller is better. Material depends only on seed and trial number, so that
// every policy gets the same questions; held-out trials have other lines and other slices of the text.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "eval/lines_suite.h"
#include "eval/tune.h"

namespace weir {

struct TuneTaskOptions {
  int32_t n_trials = 6;
  int32_t n_questions = 4;  // of every distance in a trial
  uint64_t seed = 0;
  double weight_inside = 1, weight_beyond = 1, weight_text = 1;  // 0: not measured
  const std::atomic<bool>* stop = nullptr;
};

class TuneTask {
 public:
  // `session`: everything except the policy's options; the pot is determined here, with session.policy, and is the same
  // for every point. `model` must outlive the object. kInvalidArgument: weights or counts out of range, a pot that
  // holds hardly a line; otherwise what PlanSession() says.
  static Result<TuneTask> Make(const LoadedModel& model, const SessionOptions& session, const TuneTaskOptions& options);

  // Tokens of text that all trials can use, the held-out ones included.
  int64_t text_tokens_wanted() const;
  // Sets the text; without it there is none. kInvalidArgument: slices of it would not be longer than the pot.
  Status SetText(std::vector<int32_t> tokens);

  // TuneMeasure: figures `objective`, then those of `inside`, `beyond`, `text` that are measured.
  Result<TuneFigures> Measure(const PolicySpec& policy, bool held_out) const;

  int32_t pot() const { return session_.pot_slots; }
  const LinesOptions& lines() const { return lines_; }
  bool asks_lines() const { return options_.weight_inside > 0 || options_.weight_beyond > 0; }
  // Approximate cost of one point: tokens read, and questions asked aside.
  int64_t tokens_per_point() const;
  int64_t questions_per_point() const;

 private:
  struct Parts {
    double inside = 0, beyond = 0, text = 0;
  };
  TuneTask(const LoadedModel& model, const SessionOptions& session, const TuneTaskOptions& options)
      : model_(&model), session_(session), options_(options) {}
  Status MakeLines();
  // Of lines as RunLinesStream() reads them, with the prose between them.
  double TokensPerLine() const;
  Status MeasureLines(Session& session, int32_t trial, bool held_out, Parts* parts) const;
  Status MeasureText(Session& session, int32_t trial, bool held_out, Parts* parts) const;

  const LoadedModel* model_;
  SessionOptions session_;
  TuneTaskOptions options_;
  LinesOptions lines_;
  size_t n_inside_ = 0;  // lines_.distances: those inside the pot first
  double tokens_per_line_ = 0;
  std::vector<int32_t> text_;
  int64_t slice_ = 0;  // tokens of text in a trial; 0: no text
};

}  // namespace weir
