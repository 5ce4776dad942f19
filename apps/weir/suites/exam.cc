// SPDX-License-Identifier: Apache-2.0
#include "suites/exam.h"

#include <unistd.h>

#include <fmt/core.h>
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "chat/probe.h"
#include "eval/policy_list.h"
#include "io/json.h"
#include "print.h"
#include "recall_flags.h"
#include "suites/resume.h"
#include "text/chat_template.h"

namespace weir::app {
namespace {

void PutNumber(nlohmann::ordered_json* row, const std::string& key, double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    (*row)[key] = static_cast<int64_t>(value);
  } else {
    (*row)[key] = value;
  }
}

// Text so long that no stream of an exam needs more, for policies that never forget.
constexpr int64_t kLargestFullPot = 1 << 16;

Status OneRun(const EvalFlags& flags, const EvalRun& run, const LoadedModel& model, const ChatTemplate* chat,
              const RecallOptions& recall, const Exam& exam, bool estimate, size_t n_runs, bool truncate = false) {
  WEIR_ASSIGN_OR_RETURN(SessionOptions options, OptionsOf(flags, run));
  const auto policy = options.policy.Make();
  if (!policy.ok()) return policy.status();
  const PolicyNeeds needs = (*policy)->Needs();
  if (!needs.evicts && !truncate) GivePotForAll(run.policy, exam.longest_tokens, model.model().config(), &options);
  options.nll = true;
  // If a probe contains the question, "?" is a placeholder until Examinee::Expect() announces the question.
  const bool expects = exam.n_expected > 0 && needs.probe.find(kQuestionMark) != std::string::npos;
  WEIR_RETURN_IF_ERROR(AddProbe(model, flags.model, chat != nullptr,
                                expects ? std::optional<std::string_view>("?") : std::nullopt, &options));
  if (expects) options.max_probe += exam.n_expected;
  WEIR_RETURN_IF_ERROR(AddRecall(recall, model, &options));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Make(model.model(), model.backend(), options));
  std::unique_ptr<StreamRecall> recalled;
  if (recall.on()) {
    WEIR_ASSIGN_OR_RETURN(recalled, StreamRecall::Make(recall, model, *session));
  }
  if (estimate) {
    WEIR_ASSIGN_OR_RETURN(const Rates rates, MeasureRates(*session));
    const double n_asked = static_cast<double>(exam.n_questions);
    Print(stderr, "{}: {} run{} of about {} tokens and {} questions, at most {:.0f} s each on this machine\n",
          exam.suite, n_runs, n_runs == 1 ? "" : "s", CountText(exam.read_tokens), CountText(exam.n_questions),
          static_cast<double>(exam.read_tokens) / rates.read + n_asked * exam.n_answer / rates.answer);
  }
  Examinee asked(*session, model.tokenizer(), chat, flags.gold_nll, &StopFlag());
  Examinee plain(*session, model.tokenizer(), nullptr, flags.gold_nll, &StopFlag());
  asked.SetRecall(recalled.get());
  plain.SetRecall(recalled.get());
  const std::string policy_text = truncate ? "truncation" : options.policy.text;
  ExamProgress progress(
      fmt::format("{} {}, pot {}", exam.suite, truncate ? policy_text : run.policy, session->plan().pot_slots));
  int64_t n_questions = 0;
  const Clock::time_point start = Clock::now();
  SuiteHooks hooks;
  hooks.progress = [&](int64_t done, int64_t total) { progress.Update(n_questions = done, total); };
  const auto start_row = [&](const Cell& cell) {
    nlohmann::ordered_json row = RowStart(exam.suite, cell.task, flags, policy_text, *session);
    if (!exam.data.empty()) row["data"] = exam.data;
    row["prompt"] = flags.prompt;
    if (recall.on()) {
      row["recall"] = recall.spec.text;
      row["recall_tokens"] = session->plan().excerpt_slots;
    }
    return row;
  };
  hooks.finished = [&](const Cell& cell) {
    if (exam.finished.empty()) return false;
    nlohmann::ordered_json row = start_row(cell);
    PutCell(cell, *session, &row);
    row["seed"] = flags.seed;
    return exam.finished.contains(RowKey(row, kExamKeys));
  };
  hooks.report = [&](const Cell& cell) {
    nlohmann::ordered_json row = start_row(cell);
    PutCell(cell, *session, &row);
    row["seed"] = flags.seed;
    if (cell.n_wanted > 0) row["complete"] = cell.score.n() == cell.n_wanted;
    // Of the run so far: what the cells cost together.
    ExamCost cost = asked.cost();
    cost += plain.cost();
    PutCost(cost, SecondsSince(start), *session, &row);
    Print(stdout, "{}\n", JsonText(row));
    std::fflush(stdout);
  };
  const Status status =
      truncate ? exam.run_cut(asked, session->plan().pot_slots, hooks) : exam.run(asked, plain, hooks);
  progress.Done(n_questions);
  if (status.code() == StatusCode::kOverBudget) {
    Print(stderr, "weir: warning: {} stopped here: {}\n", run.policy, status.message());
    return Status();
  }
  return status;
}

}  // namespace

void ExamProgress::Update(int64_t done, int64_t total) {
  if (!terminal_ || (SecondsSince(shown_) < 0.2 && done < total)) return;
  shown_ = Clock::now();
  const double s = SecondsSince(start_), left = s * static_cast<double>(total - done) / static_cast<double>(done);
  Print(stderr, "\r{}: {} of {} questions, {:.0f} s, about {:.0f} s left\033[K", what_, CountText(done),
        CountText(total), s, left);
}

void ExamProgress::Done(int64_t n_questions) {
  Print(stderr, "{}{}: {} questions, {:.1f} s{}\n", terminal_ ? "\r" : "", what_, CountText(n_questions),
        SecondsSince(start_), terminal_ ? "\033[K" : "");
}

ExamProgress::ExamProgress(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO)) {}

void GivePotForAll(const std::string& policy, int64_t longest_tokens, const ModelConfig& model,
                   SessionOptions* options) {
  options->pot_slots = static_cast<int32_t>(std::clamp<int64_t>(longest_tokens, 256, kLargestFullPot));
  if (longest_tokens <= model.n_ctx_train) return;
  Print(stderr,
        "weir: warning: {} keeps streams of up to {} tokens, but the model was trained with {}: it is a ceiling only "
        "up to there\n",
        policy, CountText(longest_tokens), CountText(model.n_ctx_train));
}

void PutCell(const Cell& cell, const Session& session, nlohmann::ordered_json* out) {
  nlohmann::ordered_json& row = *out;
  for (const auto& [key, value] : cell.labels) row[key] = value;
  for (const auto& [key, value] : cell.numbers) PutNumber(&row, key, value);
  row["metric"] = cell.metric;
  row["value"] = cell.score.mean();
  row["stderr"] = cell.score.std_error();
  row["n"] = cell.score.n();
  if (cell.gold_nll.n() > 0) {
    row["gold_nll"] = cell.gold_nll.mean();
    row["gold_nll_stderr"] = cell.gold_nll.std_error();
  }
  if (cell.tokens_back.n() > 0) {
    row["tokens_back"] = cell.tokens_back.mean();
    row["inside_pot"] = cell.tokens_back.mean() < session.plan().pot_slots;
  }
  for (const auto& [key, figure] : cell.more) {
    row[key] = figure.mean();
    row[key + "_stderr"] = figure.std_error();
  }
}

void PutCost(const ExamCost& cost, double seconds, const Session& session, nlohmann::ordered_json* out) {
  nlohmann::ordered_json& row = *out;
  row["tokens"] = cost.read_tokens;
  row["answer_tokens"] = cost.answer_tokens;
  row["seconds"] = seconds;
  row["tokens_per_s"] = cost.read_s > 0 ? static_cast<double>(cost.read_tokens) / cost.read_s : 0;
  row["answer_tokens_per_s"] = cost.answer_s > 0 ? static_cast<double>(cost.answer_tokens) / cost.answer_s : 0;
  row["peak_bytes"] = session.ledger().peak_bytes();
  row["resident_bytes"] = ResidentBytes();
}

void AddRunFlags(CLI::App& app, EvalFlags* flags) {
  AddModelFlags(app, &flags->model);
  AddPotFlags(app, &flags->pot);
  AddRecallFlags(app, &flags->pot.recall);
  // A single policy and pot become lists here.
  for (const char* name : {"--policy", "--ctx-size", "--pot"}) app.remove_option(app.get_option(name));
  app.add_option("--policy", flags->policies,
                 "policies to run, one run each: NAME[:key=value,...] separated by ';' (or by ',' if the next piece is "
                 "not key=value); may be repeated. A policy that never evicts gets a pot for the whole stream")
      ->allow_extra_args(false)
      ->capture_default_str()
      ->type_name("LIST");
  app.add_option("--pot", flags->pots, "tokens kept per layer and head, one run each; default as for `weir run`")
      ->delimiter(',')
      ->check(Between(1, 1 << 26))
      ->type_name("TOKENS,...");
}

void AddExamFlags(CLI::App& app, EvalFlags* flags, int n) {
  // In an exam a full pot is never an error but for policies that keep everything.
  app.remove_option(app.get_option("--on-overflow"));
  flags->n = n;
  app.add_option("--n", flags->n, "trials per cell")->check(Between(1, 1 << 20))->capture_default_str();
  app.add_option("-s,--seed", flags->seed, "random seed of the material, the same for every policy")
      ->capture_default_str();
  app.add_option("--prompt", flags->prompt,
                 "completion: the model continues the beginning of the answer; chat: it is asked in its chat template")
      ->check(CLI::IsMember({"completion", "chat"}))
      ->capture_default_str();
  AddChatFlags(app, &flags->model);
  app.add_option("--gold-nll", flags->gold_nll, "also measure how likely the right answer is (completion only)")
      ->capture_default_str();
}

Result<std::vector<EvalRun>> RunsOf(const EvalFlags& flags) {
  std::vector<std::string> policies;
  for (const std::string& text : flags.policies) {
    for (std::string& one : SplitPolicyList(text)) policies.push_back(std::move(one));
  }
  if (policies.empty()) return InvalidArgument("--policy has no policy in it");
  const std::vector<int32_t> pots = flags.pots.empty() ? std::vector<int32_t>{0} : flags.pots;
  std::vector<EvalRun> out;
  for (const int32_t pot : pots) {
    for (const std::string& policy : policies) out.push_back({policy, pot});
  }
  return out;
}

Result<std::vector<EvalRun>> DistinctRunsOf(const EvalFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(std::vector<EvalRun> runs, RunsOf(flags));
  std::vector<std::string> kept;
  for (size_t i = 0; i < runs.size();) {
    WEIR_ASSIGN_OR_RETURN(const SessionOptions options, OptionsOf(flags, runs[i]));
    WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy, options.policy.Make());
    const bool again = std::find(kept.begin(), kept.end(), options.policy.text) != kept.end();
    if (!policy->Needs().evicts) kept.push_back(options.policy.text);
    if (again) {
      runs.erase(runs.begin() + static_cast<int64_t>(i));
    } else {
      ++i;
    }
  }
  return runs;
}

Result<SessionOptions> OptionsOf(const EvalFlags& flags, const EvalRun& run) {
  PotFlags pot = flags.pot;
  pot.policy = run.policy;
  pot.pot = run.pot;
  return ToSessionOptions(pot);
}

nlohmann::ordered_json RowStart(const char* suite, const std::string& task, const EvalFlags& flags,
                                const std::string& policy, const Session& session) {
  nlohmann::ordered_json row;
  row["suite"] = suite;
  row["task"] = task;
  row["model"] = flags.model.FileName();
  row["policy"] = policy;
  row["pot"] = session.plan().pot_slots;
  row["chunk"] = session.plan().chunk_rows;
  row["budget_bytes"] = session.plan().total_bytes;
  return row;
}

Status RunExam(const EvalFlags& flags, const std::function<Result<Exam>(const LoadedModel&)>& make) {
  InstallStopHandler();
  WEIR_ASSIGN_OR_RETURN(const std::vector<EvalRun> runs, DistinctRunsOf(flags));
  WEIR_ASSIGN_OR_RETURN(const RecallOptions recall, ToNewRecallOptions(flags.pot.recall, true));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(flags.model));
  std::unique_ptr<ChatTemplate> chat;
  if (flags.prompt == "chat") {
    WEIR_ASSIGN_OR_RETURN(ChatTemplate found,
                          ChatTemplate::ForFile(model->file(), model->tokenizer(), flags.model.chat_template,
                                                flags.model.chat_arguments));
    chat = std::make_unique<ChatTemplate>(std::move(found));
  }
  WEIR_ASSIGN_OR_RETURN(const Exam exam, make(*model));
  for (size_t i = 0; i < runs.size(); ++i) {
    WEIR_RETURN_IF_ERROR(OneRun(flags, runs[i], *model, chat.get(), recall, exam, i == 0, runs.size()));
    WEIR_RETURN_IF_ERROR(FlushOutput());
  }
  if (!exam.run_cut) return Status();
  std::set<int32_t> pots;
  for (const EvalRun& run : runs) pots.insert(run.pot);
  for (const int32_t pot : pots) {
    if (pot == 0) continue;
    const EvalRun run = {"full", pot};
    WEIR_RETURN_IF_ERROR(OneRun(flags, run, *model, chat.get(), RecallOptions(), exam, false, 0, /*truncate=*/true));
    WEIR_RETURN_IF_ERROR(FlushOutput());
  }
  return Status();
}

}  // namespace weir::app
