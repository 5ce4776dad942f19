// SPDX-License-Identifier: Apache-2.0
#include "eval/tune_task.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "chat/probe.h"
#include "eval/haystack.h"
#include "eval/perplexity.h"

namespace weir {
namespace {

// Distances in pots.
constexpr double kInside[] = {0.25, 0.5}, kBeyond[] = {1.25, 2};
// Large pots are filled with prose between the lines, so that a stream has about this many lines a pot and costs as
// many questions as in a small pot.
constexpr int32_t kLinesPerPot = 32;
constexpr int32_t kLeastGapTokens = 8;  // shorter prose is left out
constexpr int64_t kPotsOfText = 3;      // longest slice of text

// Numbers of held-out trials, far from those of the search.
constexpr uint64_t kHeldOut = uint64_t{1} << 32;

}  // namespace

Result<TuneTask> TuneTask::Make(const LoadedModel& model, const SessionOptions& session,
                                const TuneTaskOptions& options) {
  for (const double weight : {options.weight_inside, options.weight_beyond, options.weight_text}) {
    if (!(weight >= 0 && weight <= 1e6)) return InvalidArgument("weights must be between 0 and 1e6");
  }
  if (options.weight_inside + options.weight_beyond + options.weight_text == 0) {
    return InvalidArgument("all weights are 0: nothing would be measured");
  }
  if (options.n_trials < 1 || options.n_questions < 1)
    return InvalidArgument("trials and questions must be at least 1");
  TuneTask out(model, session, options);
  out.session_.nll = true;
  SessionOptions start = out.session_;
  WEIR_RETURN_IF_ERROR(PrepareProbe(model.tokenizer(), nullptr, std::nullopt, &start));
  WEIR_ASSIGN_OR_RETURN(const SessionPlan plan, PlanSession(model.model(), model.backend(), start));
  out.session_.pot_slots = plan.pot_slots;
  out.session_.chunk_rows = plan.chunk_rows;
  WEIR_RETURN_IF_ERROR(out.MakeLines());
  return out;
}

double TuneTask::TokensPerLine() const {
  constexpr int kLines = 64;
  LineSource source(lines_.keys, 0);
  Haystack prose = Haystack::Prose(0);
  EncodeOptions encode;
  encode.add_special = false;
  int64_t n = 0;
  for (int i = 0; i < kLines; ++i) {
    const std::string gap = lines_.gap_bytes > 0 ? prose.NextBytes(lines_.gap_bytes) + "\n" : std::string();
    n += static_cast<int64_t>(model_->tokenizer().Encode(gap + LineText(lines_.format, source.Next()), encode).size());
  }
  return static_cast<double>(n) / kLines;
}

Status TuneTask::MakeLines() {
  lines_.n = options_.n_questions;
  lines_.n_answer = 1;  // only the answer's likelihood is needed
  tokens_per_line_ = TokensPerLine();
  const double gap_tokens = static_cast<double>(pot()) / kLinesPerPot - tokens_per_line_;
  if (gap_tokens >= kLeastGapTokens) {
    EncodeOptions encode;
    encode.add_special = false;
    const std::string prose = Haystack::Prose(0).NextBytes(1 << 13);
    const double bytes_per_token =
        static_cast<double>(prose.size()) / static_cast<double>(model_->tokenizer().Encode(prose, encode).size());
    lines_.gap_bytes = static_cast<int32_t>(std::min(gap_tokens * bytes_per_token, 1e8));
    tokens_per_line_ = TokensPerLine();
  }
  const double lines_per_pot = static_cast<double>(pot()) / tokens_per_line_;
  if (asks_lines() && lines_per_pot < 2) {
    return InvalidArgument("a pot of {} tokens holds less than two lines to ask for; use at least {:.0f}", pot(),
                           std::ceil(2 * tokens_per_line_));
  }
  lines_.distances.clear();
  const auto add = [&](double pots) {
    const int32_t distance = std::max(1, static_cast<int32_t>(std::lround(pots * lines_per_pot)));
    if (std::find(lines_.distances.begin(), lines_.distances.end(), distance) == lines_.distances.end()) {
      lines_.distances.push_back(distance);
    }
  };
  if (options_.weight_inside > 0) {
    for (const double pots : kInside) add(pots);
  }
  n_inside_ = lines_.distances.size();
  if (options_.weight_beyond > 0) {
    for (const double pots : kBeyond) add(pots);
  }
  lines_.every = std::max(1, static_cast<int32_t>(std::lround(lines_per_pot / 4)));
  if (!asks_lines()) return Status();
  if (lines_.distances.back() > LineSource(lines_.keys, 0).n_keys() / 2) lines_.keys = LineKeys::kPair;
  return CheckLinesOptions(lines_, /*stream=*/true);
}

int64_t TuneTask::text_tokens_wanted() const {
  return options_.weight_text > 0 ? 2 * options_.n_trials * kPotsOfText * pot() : 0;
}

Status TuneTask::SetText(std::vector<int32_t> tokens) {
  const int64_t n_slices = 2 * static_cast<int64_t>(options_.n_trials), n_tokens = static_cast<int64_t>(tokens.size());
  slice_ = std::min(n_tokens / n_slices, kPotsOfText * pot());
  if (slice_ <= pot()) {
    slice_ = 0;
    return InvalidArgument(
        "the text has {} tokens; {} trials with a pot of {} need more than {}, half of them held out", n_tokens,
        options_.n_trials, pot(), n_slices * pot());
  }
  text_ = std::move(tokens);
  return Status();
}

int64_t TuneTask::tokens_per_point() const {
  double tokens = static_cast<double>(slice_);
  if (asks_lines()) {
    tokens += tokens_per_line_ * (lines_.distances.back() + static_cast<double>(lines_.n) * lines_.every);
  }
  return static_cast<int64_t>(tokens * options_.n_trials);
}

int64_t TuneTask::questions_per_point() const {
  return static_cast<int64_t>(lines_.distances.size()) * lines_.n * options_.n_trials;
}

Status TuneTask::MeasureLines(Session& session, int32_t trial, bool held_out, Parts* parts) const {
  Examinee examinee(session, model_->tokenizer(), /*chat=*/nullptr, /*score_gold=*/true, options_.stop);
  LinesOptions lines = lines_;
  lines.seed = TrialRng(options_.seed, (held_out ? kHeldOut : 0) + static_cast<uint64_t>(trial)).Next();
  SuiteHooks hooks;
  RunningMean inside, beyond;
  hooks.report = [&, n = size_t{0}](const Cell& cell) mutable {
    (n++ < n_inside_ ? inside : beyond).Add(cell.gold_nll.n() == 0 ? NAN : cell.gold_nll.mean());
  };
  WEIR_RETURN_IF_ERROR(RunLinesStream(examinee, lines, hooks));
  parts->inside = inside.mean();
  parts->beyond = beyond.mean();
  return Status();
}

Status TuneTask::MeasureText(Session& session, int32_t trial, bool held_out, Parts* parts) const {
  session.Reset();
  StreamPerplexity stream(session, INT64_MAX, [](int64_t, int64_t, const PerplexityResult&) {});
  WEIR_RETURN_IF_ERROR(stream.Push(model_->tokenizer().EncodePieces({}, true), options_.stop));
  // Slices of search and held-out trials alternate: both see all of the text.
  const size_t begin = static_cast<size_t>((2 * trial + (held_out ? 1 : 0)) * slice_);
  WEIR_RETURN_IF_ERROR(stream.Push({text_.data() + begin, static_cast<size_t>(slice_)}, options_.stop));
  parts->text = stream.total().Result().nll_mean;
  return Status();
}

Result<TuneFigures> TuneTask::Measure(const PolicySpec& policy, bool held_out) const {
  const double w_inside = options_.weight_inside, w_beyond = options_.weight_beyond,
               w_text = slice_ > 0 ? options_.weight_text : 0, sum = w_inside + w_beyond + w_text;
  if (sum == 0) return InvalidArgument("only text has a weight, and there is no text");
  SessionOptions options = session_;
  options.policy = policy;
  WEIR_RETURN_IF_ERROR(PrepareProbe(model_->tokenizer(), nullptr, std::nullopt, &options));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                        Session::Make(model_->model(), model_->backend(), options));
  TuneFigure objective{"objective", {}}, inside{"inside", {}}, beyond{"beyond", {}}, text{"text", {}};
  for (int32_t trial = 0; trial < options_.n_trials; ++trial) {
    Parts parts;
    if (asks_lines()) WEIR_RETURN_IF_ERROR(MeasureLines(*session, trial, held_out, &parts));
    if (w_text > 0) WEIR_RETURN_IF_ERROR(MeasureText(*session, trial, held_out, &parts));
    const double value = (w_inside * parts.inside + w_beyond * parts.beyond + w_text * parts.text) / sum;
    if (!std::isfinite(value)) {
      return Unsupported(
          "an answer has no likelihood: the model's numbers are not finite, or its tokenizer joins "
          "question and answer");
    }
    objective.trials.push_back(value);
    inside.trials.push_back(parts.inside);
    beyond.trials.push_back(parts.beyond);
    text.trials.push_back(parts.text);
  }
  TuneFigures out = {std::move(objective)};
  if (w_inside > 0) out.push_back(std::move(inside));
  if (w_beyond > 0) out.push_back(std::move(beyond));
  if (w_text > 0) out.push_back(std::move(text));
  return out;
}

}  // namespace weir
