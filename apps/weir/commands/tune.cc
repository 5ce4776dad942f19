// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir tune: finds a policy's options for one model and one pot, and writes them to a profile.
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "chat/probe.h"
#include "commands/command.h"
#include "common.h"
#include "eval/tune.h"
#include "eval/tune_task.h"
#include "io/json.h"
#include "print.h"
#include "progress.h"
#include "text/stream.h"

namespace weir::app {
namespace {

struct TuneFlags {
  std::string search, file, output;
  std::vector<double> weights = {1, 1, 1};
  TuneTaskOptions task;
  int32_t max_points = 200;
  bool json = false;
};

// Checks up front that the profile can be written, before minutes are spent.
Status CheckOutput(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return InvalidArgument("--output {}: not a regular file", path);
  }
  const std::string part = path + ".part";
  std::FILE* file = std::fopen(part.c_str(), "wb");
  if (file == nullptr) return IoError("cannot write {}: {}", path, std::strerror(errno));
  std::fclose(file);
  std::remove(part.c_str());
  return Status();
}

Result<std::vector<int32_t>> TextTokens(const Tokenizer& tokenizer, const std::string& path, int64_t n_wanted) {
  WEIR_ASSIGN_OR_RETURN(TextSource source, TextSource::Open(path));
  EncodeOptions encode;
  encode.add_special = false;
  StreamEncoder encoder(tokenizer, encode);
  std::vector<int32_t> tokens;
  std::string piece;
  for (bool more = true; more && static_cast<int64_t>(tokens.size()) < n_wanted;) {
    WEIR_ASSIGN_OR_RETURN(more, source.Read(&piece));
    encoder.Push(piece, &tokens);
    if (!more) encoder.Finish(&tokens);
  }
  if (static_cast<int64_t>(tokens.size()) > n_wanted) tokens.resize(static_cast<size_t>(n_wanted));
  return tokens;
}

// Points as they are known: a table, or a JSON object a line; on a terminal, what is left of the search.
class Report {
 public:
  Report(bool json, int64_t n_expected) : json_(json), n_expected_(n_expected), terminal_(isatty(STDERR_FILENO) != 0) {}

  void Point(const TunePoint& point) {
    json_ ? JsonPoint(point) : TablePoint(point);
    std::fflush(stdout);
    if (point.held_out) return;
    ++n_points_;
    const double per_point = SecondsSince(start_) / static_cast<double>(n_points_);
    if (n_points_ == 1 || terminal_) {
      Print(stderr, "tune     point {}, one pass has {}; {} per point, about {} left\n", n_points_, n_expected_,
            DurationText(per_point),
            DurationText(per_point * static_cast<double>(std::max<int64_t>(0, n_expected_ - n_points_) + 2)));
    }
  }

 private:
  void TablePoint(const TunePoint& point) {
    if (!header_) {
      Print(stdout, "  {:<24} {:<17} {:<19}", "option", "objective", "gain");
      for (size_t i = 1; i < point.figures.size(); ++i) Print(stdout, " {:<15}", point.figures[i].name);
      Print(stdout, "\n");
      header_ = true;
    }
    std::string name = point.key.empty() ? "default" : point.key + "=" + point.value;
    if (point.held_out) {
      name = held_out_ ? "found" : "default";
      if (!held_out_) Print(stdout, "held-out trials:\n");
      held_out_ = true;
    }
    Print(stdout, "{} {:<24} ", point.best ? '*' : ' ', Printable(name));
    if (!point.status.ok()) {
      Print(stdout, "skipped: {}\n", Printable(point.status.message()));
      return;
    }
    Print(stdout, "{:<17} {:<19}", MeanText(MeanOf(point.figures[0])),
          name == "default" ? "" : fmt::format("{:+.4f} +- {:.4f}", point.gain.mean(), point.gain.std_error()));
    for (size_t i = 1; i < point.figures.size(); ++i) Print(stdout, " {:<15}", MeanText(MeanOf(point.figures[i])));
    Print(stdout, "\n");
  }
  static std::string MeanText(const RunningMean& mean) {
    return fmt::format("{:.4f} +- {:.3f}", mean.mean(), mean.std_error());
  }

  void JsonPoint(const TunePoint& point) {
    nlohmann::ordered_json row;
    row["type"] = point.held_out ? "held_out" : "point";
    row["policy"] = point.policy.text;
    if (!point.held_out) {
      row["option"] = point.key;
      row["value"] = point.value;
    }
    if (!point.status.ok()) {
      row["refused"] = point.status.message();
    } else {
      row["best"] = point.best;
      for (const TuneFigure& figure : point.figures) {
        const RunningMean mean = MeanOf(figure);
        row[figure.name] = mean.mean();
        row[figure.name + "_stderr"] = mean.std_error();
      }
      row["gain"] = point.gain.mean();
      row["gain_stderr"] = point.gain.std_error();
      row["trials"] = point.gain.n();
    }
    row["seconds"] = SecondsSince(start_);
    Print(stdout, "{}\n", JsonText(row));
  }

  const bool json_;
  const int64_t n_expected_;
  const bool terminal_;
  const Clock::time_point start_ = Clock::now();
  int64_t n_points_ = 0;
  bool header_ = false, held_out_ = false;
};

void PrintVerdict(const TuneResult& result, const std::string& output, bool json) {
  const RunningMean gain = GainOf(result.start_figures[0], result.found_figures[0]);
  if (json) {
    nlohmann::ordered_json row;
    row["type"] = "result";
    row["kept"] = result.kept_found ? "found" : "default";
    row["policy"] = result.kept().text;
    row["found"] = result.found.text;
    row["gain"] = gain.mean();
    row["gain_stderr"] = gain.std_error();
    row["points"] = result.n_points;
    row["converged"] = result.converged;
    row["profile"] = output;
    Print(stdout, "{}\n", JsonText(row));
    return;
  }
  if (!result.converged) Print(stdout, "the search ended at its limit, after {} points\n", result.n_points);
  if (result.found.text == result.start.text) {
    Print(stdout, "no setting tried was better than the default\n");
  } else if (result.kept_found) {
    Print(stdout, "the setting found is better than the default by {:.4f} +- {:.4f} nats on held-out trials\n",
          gain.mean(), gain.std_error());
  } else {
    Print(stdout,
          "the setting found differs from the default by {:+.4f} +- {:.4f} nats on held-out trials: within the "
          "measurement error, or worse; the default is kept\n",
          gain.mean(), gain.std_error());
  }
  Print(stdout, "kept {}\nwritten to {}: use it with --policy {}:profile={}\n", Printable(result.kept().text),
        Printable(output), result.start.info->name, Printable(output));
}

// Prints what will run and an estimate of the time, before it runs.
Status Announce(const LoadedModel& model, const PotFlags& pot_flags, SessionOptions options, const TuneTask& task,
                const std::vector<TuneAxis>& axes, int64_t n_points) {
  options.nll = true;
  WEIR_RETURN_IF_ERROR(PrepareProbe(model.tokenizer(), nullptr, std::nullopt, &options));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Make(model.model(), model.backend(), options));
  PrintConfiguration(model, *session, pot_flags, "");
  WEIR_ASSIGN_OR_RETURN(const Rates rates, MeasureRates(*session));
  for (const TuneAxis& axis : axes) {
    std::string values;
    for (const std::string& value : axis.values) values += (values.empty() ? "" : ", ") + value;
    Print(stderr, "search   {}: {}\n", axis.key, Printable(values));
  }
  if (task.asks_lines()) {
    std::string distances;
    for (const int32_t distance : task.lines().distances) distances += fmt::format(" {}", distance);
    Print(stderr, "trials   lines asked for from{} lines back\n", distances);
  }
  // A question is read twice, once with its answer, and one token is generated.
  const double per_point = static_cast<double>(task.tokens_per_point()) / rates.read +
                           3 * static_cast<double>(task.questions_per_point()) / rates.answer;
  Print(stderr, "tune     one pass measures {} points of {} tokens and {} questions: at least {}\n", n_points,
        CountText(task.tokens_per_point()), task.questions_per_point(),
        DurationText(per_point * static_cast<double>(n_points + 2)));
  return Status();
}

Status RunTune(const ModelFlags& model_flags, const PotFlags& pot_flags, TuneFlags flags) {
  WEIR_ASSIGN_OR_RETURN(const SessionOptions options, ToSessionOptions(pot_flags));
  WEIR_ASSIGN_OR_RETURN(const std::vector<TuneAxis> axes, TuneAxes(options.policy, flags.search));
  WEIR_RETURN_IF_ERROR(CheckOutput(flags.output));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(model_flags));
  flags.task.weight_inside = flags.weights[0];
  flags.task.weight_beyond = flags.weights[1];
  flags.task.weight_text = flags.weights[2];
  flags.task.stop = &StopFlag();
  WEIR_ASSIGN_OR_RETURN(TuneTask task, TuneTask::Make(*model, options, flags.task));
  if (!flags.file.empty() && task.text_tokens_wanted() > 0) {
    WEIR_ASSIGN_OR_RETURN(std::vector<int32_t> text,
                          TextTokens(model->tokenizer(), flags.file, task.text_tokens_wanted()));
    WEIR_RETURN_IF_ERROR(task.SetText(std::move(text)));
  } else if (flags.file.empty()) {
    Print(stderr, "text     none: only lines are measured; --file adds the likelihood of a text\n");
  }
  const int64_t n_points = std::min<int64_t>(PointsOfOnePass(options.policy, axes), flags.max_points);
  WEIR_RETURN_IF_ERROR(Announce(*model, pot_flags, options, task, axes, n_points));
  Report report(flags.json, n_points);
  TuneOptions tune;
  tune.max_points = flags.max_points;
  tune.report = [&](const TunePoint& point) { report.Point(point); };
  const auto measure = [&](const PolicySpec& policy, bool held_out) { return task.Measure(policy, held_out); };
  WEIR_ASSIGN_OR_RETURN(const TuneResult result, Tune(options.policy, axes, measure, tune));
  WEIR_RETURN_IF_ERROR(WriteProfile(flags.output, ToProfile(result, ModelName(*model), task.pot(), flags.task.seed)));
  PrintVerdict(result, flags.output, flags.json);
  return Status();
}

Action AddTune(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto flags = std::make_shared<TuneFlags>();
  AddModelFlags(sub, model.get());
  AddPotFlags(sub, pot.get());
  AddVerboseFlag(sub, pot.get());
  sub.get_option("--policy")->required()->default_str("");
  sub.add_option("-o,--output", flags->output, "profile to write, for --policy NAME:profile=FILE")
      ->required()
      ->check(NotEmpty())
      ->type_name("FILE");
  sub.add_option("--search", flags->search,
                 "options and values to try, \"b=0,0.001;recent=32,64\"; default: those the policy declares, except "
                 "options set in --policy")
      ->check(NotEmpty())
      ->type_name("VALUES");
  sub.add_option("-f,--file", flags->file, "text whose likelihood counts in the objective too; - is standard input")
      ->type_name("FILE");
  sub.add_option("--trials", flags->task.n_trials, "streams measured per point")
      ->check(Between(2, 1 << 16))
      ->capture_default_str();
  sub.add_option("--questions", flags->task.n_questions, "questions per distance in a trial")
      ->check(Between(1, 1 << 16))
      ->capture_default_str();
  sub.add_option("--seed", flags->task.seed, "random seed of the trials")->capture_default_str();
  sub.add_option("--weights", flags->weights,
                 "weights in the objective of lines inside the pot, lines beyond it, and text")
      ->delimiter(',')
      ->expected(3)
      ->type_name("INSIDE,BEYOND,TEXT")
      ->capture_default_str();
  sub.add_option("--max-points", flags->max_points, "maximum points to measure")
      ->check(Between(1, 1 << 20))
      ->capture_default_str();
  sub.add_flag("--json", flags->json, "print JSON lines on standard output instead of a table");
  return [=] {
    InstallStopHandler();
    return RunTune(*model, *pot, *flags);
  };
}

}  // namespace

extern const CommandInfo kTune;
const CommandInfo kTune = {.name = "tune",
                           .summary = "tune a policy's options for a model and a pot, and save them in a profile",
                           .group = CommandGroup::kMeasure,
                           .add = AddTune};

}  // namespace weir::app
