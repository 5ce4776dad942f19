// SPDX-License-Identifier: Apache-2.0
#include "eval/video_suite.h"

#include <algorithm>
#include <map>
#include <set>

#include "eval/answer_metrics.h"
#include "eval/text_match.h"
#include "eval/text_tasks.h"

namespace weir {
namespace {

constexpr const char* kPresent = "present";

Result<bool> IsRight(const PictureQuestion& q, const std::string& reply) {
  if (q.metric.empty()) {
    return std::any_of(q.answers.begin(), q.answers.end(),
                       [&](const std::string& answer) { return ExactMatch(reply, answer); });
  }
  WEIR_ASSIGN_OR_RETURN(const double score, TextScore(q.metric, reply, q.answers));
  return score >= 1;
}

// StreamingBench's proactive task: a yes anywhere.
bool SaysYes(const std::string& reply) { return ContainsAll(reply, std::vector<std::string>{"yes"}); }

// One stream from its beginning on.
class Watching {
 public:
  Watching(Viewer& viewer, const VideoSuiteOptions& options) : viewer_(viewer), options_(options) {}

  Result<ScoredRound> Next(const PictureQuestion& q, bool last_of_poll) {
    if (!q.pictures.empty()) {
      const double begins = static_cast<double>(viewer_.t_ms()) / 60000;
      WEIR_RETURN_IF_ERROR(viewer_.Show(q.lead, q.pictures));
      clips_[q.clip] = {viewer_.n_tokens(), begins};
    }
    ScoredRound round;
    round.question = &q;
    const auto about = clips_.find(q.clip - q.distance);
    if (about == clips_.end()) {
      return Corrupt("clip {} of stream {} asks {} clips back, where nothing was shown", q.clip, q.stream, q.distance);
    }
    round.tokens_back = viewer_.n_tokens() - about->second.end;
    round.about_min = about->second.begins_min;
    round.age_min = static_cast<double>(viewer_.t_ms()) / 60000 - round.about_min;
    // A poll that was answered is not asked again; its last line counts if none was.
    if (q.poll >= 0 && answered_.contains(q.poll)) {
      round.counts = false;
      return round;
    }
    const bool stays = !q.aside;
    const bool asked = stays && options_.own_answers;
    WEIR_ASSIGN_OR_RETURN(ViewerReply reply, asked ? viewer_.Ask(q.question) : viewer_.AskAside(q.question));
    if (stays && !asked) WEIR_RETURN_IF_ERROR(viewer_.Tell(q.question, q.answers.front()));
    WEIR_ASSIGN_OR_RETURN(round.right, IsRight(q, reply.text));
    if (q.poll >= 0) {
      const bool yes = SaysYes(reply.text);
      round.counts = yes || last_of_poll;
      round.right = yes && SaysYes(q.answers.front());
      if (yes) answered_.insert(q.poll);
    }
    round.n = n_rounds_ += stays;
    round.answer = reply.text;
    round.recalled = std::move(reply.recalled);
    return round;
  }

 private:
  struct Clip {
    int64_t end = 0;  // tokens of the stream when it had been shown
    double begins_min = 0;
  };
  Viewer& viewer_;
  const VideoSuiteOptions& options_;
  std::map<int64_t, Clip> clips_;
  std::set<int64_t> answered_;  // polls
  int64_t n_rounds_ = 0;
};

Cell MakeCell(const char* task, const std::string& kind, const char* number, double value) {
  Cell cell;
  cell.task = task;
  cell.metric = "accuracy";
  cell.labels = {{"kind", kind}};
  if (number != nullptr) cell.numbers = {{number, value}};
  return cell;
}

void Count(const ScoredRound& round, Cell* cell) {
  cell->score.Add(round.right ? 1 : 0);
  cell->tokens_back.Add(static_cast<double>(round.tokens_back));
}

}  // namespace

std::vector<PictureQuestion> FirstRounds(std::span<const PictureQuestion> questions, int32_t n_streams,
                                         int32_t n_rounds) {
  std::vector<PictureQuestion> out;
  std::vector<std::span<const PictureQuestion>> streams = SplitStreams(questions);
  if (n_streams > 0) streams.resize(std::min(streams.size(), static_cast<size_t>(n_streams)));
  for (const std::span<const PictureQuestion> stream : streams) {
    int32_t n = 0;
    for (const PictureQuestion& question : stream) {
      n += !question.aside;
      if (n_rounds > 0 && n > n_rounds) break;
      out.push_back(question);
    }
  }
  return out;
}

Status WatchStreams(Viewer& viewer, std::span<const PictureQuestion> questions, const VideoSuiteOptions& options,
                    const SuiteHooks& hooks, const std::function<void(const ScoredRound&)>& scored) {
  int64_t done = 0;
  for (const std::span<const PictureQuestion> stream : SplitStreams(questions)) {
    WEIR_RETURN_IF_ERROR(viewer.Begin());
    Watching watching(viewer, options);
    for (const PictureQuestion& question : stream) {
      const bool last_of_poll =
          question.poll >= 0 && std::none_of(&question + 1, stream.data() + stream.size(),
                                             [&](const PictureQuestion& later) { return later.poll == question.poll; });
      WEIR_ASSIGN_OR_RETURN(const ScoredRound round, watching.Next(question, last_of_poll));
      if (!round.counts) {
        if (hooks.progress) hooks.progress(++done, std::ssize(questions));
        continue;
      }
      scored(round);
      if (options.on_round) options.on_round(round, viewer);
      if (hooks.progress) hooks.progress(++done, std::ssize(questions));
    }
  }
  return Status();
}

Status RunVideoQa(Viewer& viewer, std::span<const PictureQuestion> questions, const VideoSuiteOptions& options,
                  const SuiteHooks& hooks) {
  if (options.rounds.empty()) return InvalidArgument("no number of rounds was given");
  std::set<std::string> kinds;
  for (const PictureQuestion& question : questions) kinds.insert(question.kind);
  kinds.erase(kPresent);
  kinds.erase("memory");
  std::vector<std::string> names = {"all", kPresent, "memory"};
  names.insert(names.end(), kinds.begin(), kinds.end());
  std::vector<Cell> cells;
  for (const int32_t n : options.rounds) {
    for (const std::string& name : names) cells.push_back(MakeCell("videoqa", name, "rounds", n));
  }
  const Status status = WatchStreams(viewer, questions, options, hooks, [&](const ScoredRound& round) {
    for (size_t i = 0; i < cells.size(); ++i) {
      if (round.n > options.rounds[i / names.size()]) continue;
      const std::string &name = names[i % names.size()], &kind = round.question->kind;
      if (name == "all" || name == kind || (name == "memory" && kind != kPresent)) Count(round, &cells[i]);
    }
  });
  ReportAll(cells, hooks);
  return status;
}

Status RunVideoTasks(Viewer& viewer, std::span<const PictureQuestion> questions, const VideoSuiteOptions& options,
                     const SuiteHooks& hooks) {
  std::vector<Cell> cells = {MakeCell("videotasks", "all", nullptr, 0)};
  for (const PictureQuestion& question : questions) {
    const auto is = [&](const Cell& cell) { return cell.labels[0].second == question.kind; };
    if (std::none_of(cells.begin(), cells.end(), is)) {
      cells.push_back(MakeCell("videotasks", question.kind, nullptr, 0));
    }
  }
  const Status status = WatchStreams(viewer, questions, options, hooks, [&](const ScoredRound& round) {
    for (Cell& cell : cells) {
      if (cell.labels[0].second == "all" || cell.labels[0].second == round.question->kind) Count(round, &cell);
    }
  });
  ReportAll(cells, hooks);
  return status;
}

Status RunStreamVideo(Viewer& viewer, std::span<const PictureQuestion> questions, const VideoSuiteOptions& options,
                      const SuiteHooks& hooks) {
  if (options.ages.empty() || !std::is_sorted(options.ages.begin(), options.ages.end()) || options.ages.front() < 0) {
    return InvalidArgument("ages must be given, in minutes, from the smallest on");
  }
  std::vector<Cell> cells = {MakeCell("streamvideo", kPresent, nullptr, 0),
                             MakeCell("streamvideo", "memory", nullptr, 0)};
  for (const double age : options.ages) cells.push_back(MakeCell("streamvideo", "first_minute", "age_min", age));
  for (Cell& cell : cells) cell.more.emplace_back("turnovers", RunningMean());
  const double n_slots = viewer.session().plan().pot_slots;
  const Status status = WatchStreams(viewer, questions, options, hooks, [&](const ScoredRound& round) {
    size_t cell = 1;
    if (round.question->kind == kPresent) {
      cell = 0;
    } else if (round.about_min < options.first_minutes) {
      if (round.age_min < options.ages.front()) return;  // of the first minute, and younger than the first age
      // The last age that is reached.
      cell = 1 + static_cast<size_t>(std::upper_bound(options.ages.begin(), options.ages.end(), round.age_min) -
                                     options.ages.begin());
    }
    Count(round, &cells[cell]);
    cells[cell].more[0].second.Add(static_cast<double>(round.tokens_back) / n_slots);
  });
  ReportAll(cells, hooks);
  return status;
}

}  // namespace weir
