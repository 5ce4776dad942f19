// SPDX-License-Identifier: Apache-2.0
#include "eval/lines_suite.h"

#include <algorithm>
#include <deque>

#include "eval/haystack.h"
#include "eval/recalled.h"
#include "eval/text_match.h"

namespace weir {
namespace {

Cell MakeCell(const char* task, const char* parameter, double value) {
  Cell cell;
  cell.task = task;
  cell.numbers.emplace_back(parameter, value);
  return cell;
}

void Count(const Reply& reply, int64_t expected, bool last, Cell* cell) {
  const auto got = last ? LastInteger(reply.text) : FirstInteger(reply.text);
  cell->score.Add(got == expected ? 1 : 0);
  if (reply.has_gold_nll) cell->gold_nll.Add(reply.gold_nll);
}

// A line without its end.
std::string TextOf(LineFormat format, const Line& line) {
  std::string text = LineText(format, line);
  text.pop_back();
  return text;
}

// A stream's newest lines and where they ended.
class LineStream {
 public:
  LineStream(Examinee& examinee, const LinesOptions& options)
      : examinee_(examinee),
        options_(options),
        source_(options.keys, TrialRng(options.seed, 0).Next()),
        prose_(Haystack::Prose(TrialRng(options.seed, 1).Next())),
        n_kept_(static_cast<size_t>(*std::max_element(options.distances.begin(), options.distances.end())) + 1 +
                static_cast<size_t>(options.carry ? kSpare : 0)) {}

  Status Next() {
    const Line line = source_.Next();
    // The prose comes first, so that a distance of d lines has d lines and their prose after the line in question.
    std::string text = options_.gap_bytes > 0 ? prose_.NextBytes(options_.gap_bytes) : std::string();
    if (!text.empty() && text.back() != '\n') text += '\n';
    if (!text.empty()) WEIR_RETURN_IF_ERROR(examinee_.Read(text));
    const int64_t begin = examinee_.n_tokens();
    WEIR_RETURN_IF_ERROR(examinee_.Read(LineText(options_.format, line)));
    lines_.push_back({line, begin, examinee_.n_tokens(), false});
    if (lines_.size() > n_kept_) lines_.pop_front();
    return Status();
  }
  const Line& Back(int32_t distance) const { return At(distance).line; }
  SeqSpan SpanOf(int32_t distance) const { return {At(distance).begin, At(distance).end}; }
  // The distance nearest to this one whose line was not asked for, which then counts as asked for; the farther of two.
  int32_t TakeUnasked(int32_t distance) {
    const auto n = static_cast<int32_t>(lines_.size());
    for (int32_t off = 0; off < n; ++off) {
      for (const int32_t at : {distance + off, distance - off}) {
        if (at < 1 || at >= n || At(at).asked) continue;
        lines_[lines_.size() - 1 - static_cast<size_t>(at)].asked = true;
        return at;
      }
    }
    return distance;
  }
  int64_t TokensBack(int32_t distance) const { return examinee_.n_tokens() - At(distance).end; }

 private:
  struct Placed {
    Line line;
    int64_t begin, end;  // tokens of the stream before and after it
    bool asked;
  };
  static constexpr int32_t kSpare = 4;  // lines beyond the farthest distance that may be asked for in its place
  const Placed& At(int32_t distance) const { return lines_[lines_.size() - 1 - static_cast<size_t>(distance)]; }

  Examinee& examinee_;
  const LinesOptions& options_;
  LineSource source_;
  Haystack prose_;
  const size_t n_kept_;
  std::deque<Placed> lines_;
};

Status ReadStream(Examinee& examinee, const LinesOptions& options, const SuiteHooks& hooks, std::vector<Cell>* cells) {
  WEIR_RETURN_IF_ERROR(examinee.Begin());
  WEIR_RETURN_IF_ERROR(examinee.Read(LinesHeader()));
  LineStream stream(examinee, options);
  const int32_t farthest = *std::max_element(options.distances.begin(), options.distances.end());
  for (int32_t i = 0; i < farthest; ++i) WEIR_RETURN_IF_ERROR(stream.Next());
  const size_t n_distances = options.distances.size();
  const int64_t n_points = static_cast<int64_t>(options.n) * static_cast<int64_t>(options.carry ? n_distances : 1),
                n_questions = static_cast<int64_t>(options.n) * static_cast<int64_t>(n_distances);
  for (int64_t point = 0, asked = 0; point < n_points; ++point) {
    for (int32_t i = 0; i < options.every; ++i) WEIR_RETURN_IF_ERROR(stream.Next());
    if (!options.carry) WEIR_RETURN_IF_ERROR(examinee.Mark());
    const size_t first = options.carry ? static_cast<size_t>(point) % n_distances : 0,
                 end = options.carry ? first + 1 : n_distances;
    for (size_t d = first; d < end; ++d) {
      const int32_t distance = options.carry ? stream.TakeUnasked(options.distances[d]) : options.distances[d];
      const Line& line = stream.Back(distance);
      (*cells)[d].tokens_back.Add(static_cast<double>(stream.TokensBack(distance)));
      Question question = LineQuestion(options.format, line);
      question.n_answer = options.n_answer;
      question.number = !examinee.chat();
      question.where = {{stream.SpanOf(distance)}};
      WEIR_ASSIGN_OR_RETURN(const Reply reply,
                            options.carry ? examinee.AskRound(question) : examinee.AskAside(question));
      Count(reply, line.value, examinee.chat(), &(*cells)[d]);
      CountRecalled(examinee, question, reply, TextOf(options.format, line), &(*cells)[d]);
      if (hooks.progress) hooks.progress(++asked, n_questions);
    }
    // After a chat's answer the next turn's head has already been read.
    if (options.carry && !examinee.chat()) WEIR_RETURN_IF_ERROR(examinee.Read("\n"));
  }
  return Status();
}

}  // namespace

Status CheckLinesOptions(const LinesOptions& options, bool stream) {
  const LineSource source(options.keys, 0);
  for (const int32_t value : stream ? options.distances : options.n_lines) {
    if (value < 1)
      return InvalidArgument("{} of {} lines: expected at least 1", stream ? "a distance" : "a prompt", value);
    const int64_t most = stream && options.keys != LineKeys::kNumber ? source.n_keys() / 2 : source.n_keys();
    if (value > most) {
      return InvalidArgument("{} lines: there are names for {}; choose other keys", value, most);
    }
  }
  if ((stream ? options.distances : options.n_lines).empty()) return InvalidArgument("no distance or length was given");
  if (options.n < 1 || options.every < 1 || options.gap_bytes < 0 || options.n_answer < 1) {
    return InvalidArgument("trials, lines between questions and answer tokens must be at least 1");
  }
  return Status();
}

Status RunLinesStream(Examinee& examinee, const LinesOptions& options, const SuiteHooks& hooks) {
  WEIR_RETURN_IF_ERROR(CheckLinesOptions(options, true));
  std::vector<Cell> cells;
  for (const int32_t distance : options.distances) cells.push_back(MakeCell("stream", "distance", distance));
  const Status status = ReadStream(examinee, options, hooks, &cells);
  ReportAll(cells, hooks);
  return status;
}

Status RunLinesPrompts(Examinee& examinee, const LinesOptions& options, const SuiteHooks& hooks) {
  WEIR_RETURN_IF_ERROR(CheckLinesOptions(options, false));
  int64_t asked = 0;
  for (const int32_t n_lines : options.n_lines) {
    Cell cell = MakeCell("longeval", "lines", n_lines);
    const auto trial = [&](int32_t t) -> Status {
      const LinesPrompt prompt = MakeLinesPrompt(options.keys, n_lines, TrialRng(options.seed, t).Next());
      WEIR_RETURN_IF_ERROR(examinee.Begin());
      WEIR_RETURN_IF_ERROR(examinee.Read(LinesHeader()));
      int64_t target_begin = 0, target_end = 0;
      for (int32_t i = 0; i < n_lines; ++i) {
        if (i == prompt.target) target_begin = examinee.n_tokens();
        WEIR_RETURN_IF_ERROR(examinee.Read(LineText(options.format, prompt.lines[i])));
        if (i == prompt.target) target_end = examinee.n_tokens();
      }
      cell.tokens_back.Add(static_cast<double>(examinee.n_tokens() - target_end));
      Question question = LineQuestion(options.format, prompt.lines[prompt.target]);
      question.n_answer = options.n_answer;
      question.number = !examinee.chat();
      question.where = {{{target_begin, target_end}}};
      WEIR_ASSIGN_OR_RETURN(const Reply reply, examinee.MarkAndAsk(question));
      Count(reply, prompt.lines[prompt.target].value, examinee.chat(), &cell);
      CountRecalled(examinee, question, reply, TextOf(options.format, prompt.lines[prompt.target]), &cell);
      if (hooks.progress) hooks.progress(++asked, static_cast<int64_t>(options.n_lines.size()) * options.n);
      return Status();
    };
    Status status;
    for (int32_t t = 0; t < options.n && status.ok(); ++t) status = trial(t);
    ReportAll({cell}, hooks);
    WEIR_RETURN_IF_ERROR(status);
  }
  return Status();
}

Status RunLinesCases(Examinee& examinee, std::span<const LinesCase> cases, const LinesOptions& options,
                     const SuiteHooks& hooks) {
  const size_t n = std::min(cases.size(), static_cast<size_t>(std::max(options.n, 0)));
  int32_t most_lines = 0;
  for (size_t i = 0; i < n; ++i) most_lines = std::max(most_lines, cases[i].n_lines);
  Cell cell = MakeCell("longeval_file", "lines", most_lines);
  Status status;
  for (size_t i = 0; i < n && status.ok(); ++i) {
    const auto trial = [&]() -> Status {
      WEIR_RETURN_IF_ERROR(examinee.Begin());
      WEIR_RETURN_IF_ERROR(examinee.Read(cases[i].prompt));
      Question question;
      question.completion = "\nThe <REGISTER_CONTENT> is <";
      question.gold = std::to_string(cases[i].expected);
      question.n_answer = options.n_answer;
      question.number = !examinee.chat();
      WEIR_ASSIGN_OR_RETURN(const Reply reply, examinee.MarkAndAsk(question));
      Count(reply, cases[i].expected, examinee.chat(), &cell);
      if (hooks.progress) hooks.progress(static_cast<int64_t>(i) + 1, static_cast<int64_t>(n));
      return Status();
    };
    status = trial();
  }
  ReportAll({cell}, hooks);
  return status;
}

}  // namespace weir
