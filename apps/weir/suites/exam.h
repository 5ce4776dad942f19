// SPDX-License-Identifier: Apache-2.0
// Shared by the suites of `weir eval`: lists of policies and pots, the loop over them, the form of a row.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "common.h"
#include "eval/examinee.h"
#include "eval/suite.h"

namespace weir::app {

struct EvalFlags {
  ModelFlags model;
  PotFlags pot;  // its policy and pot are taken from the lists
  std::vector<std::string> policies = {"streaming_llm"};
  std::vector<int32_t> pots;
  uint64_t seed = 0;
  int n = 0;
  std::string prompt = "completion";
  bool gold_nll = true;
};

// -m, --policy and --pot as lists, --budget, --chunk, cache types, --on-overflow.
void AddRunFlags(CLI::App& app, EvalFlags* flags);
// --seed, --n (with its default), --prompt, --gold-nll; takes --on-overflow away. After AddRunFlags().
void AddExamFlags(CLI::App& app, EvalFlags* flags, int n);

// One policy in one pot.
struct EvalRun {
  std::string policy;
  int32_t pot = 0;  // 0: not given
};
// Every policy in every pot, pots outermost. kInvalidArgument without a policy.
Result<std::vector<EvalRun>> RunsOf(const EvalFlags& flags);
// The same, with every policy and its options checked, so that an error is reported before hours are spent on the
// others. A policy that never forgets occurs once, since its pot does not depend on the list.
Result<std::vector<EvalRun>> DistinctRunsOf(const EvalFlags& flags);
Result<SessionOptions> OptionsOf(const EvalFlags& flags, const EvalRun& run);
// A pot that holds a whole stream (at most 65,536 tokens), for a policy that never forgets. Warns where the model was
// trained with less.
void GivePotForAll(const std::string& policy, int64_t longest_tokens, const ModelConfig& model,
                   SessionOptions* options);

// The keys every row of `weir eval` begins with.
nlohmann::ordered_json RowStart(const char* suite, const std::string& task, const EvalFlags& flags,
                                const std::string& policy, const Session& session);

// A cell's parameters and figures, and what a run had cost when it was reported.
void PutCell(const Cell& cell, const Session& session, nlohmann::ordered_json* row);
void PutCost(const ExamCost& cost, double seconds, const Session& session, nlohmann::ordered_json* row);

// Progress of a run: a line that updates in place on a terminal, one line at the end elsewhere.
class ExamProgress {
 public:
  explicit ExamProgress(std::string what);
  void Update(int64_t done, int64_t total);
  void Done(int64_t n_questions);

 private:
  std::string what_;
  bool terminal_;
  Clock::time_point start_ = Clock::now(), shown_{};
};

// A suite, made ready for a model.
struct Exam {
  const char* suite = nullptr;
  int64_t longest_tokens = 0;                // of one stream: what a policy that never forgets gets as its pot
  int64_t read_tokens = 0, n_questions = 0;  // of one run, about
  int32_t n_answer = 0;                      // tokens of an answer, at most
  int32_t n_expected = 0;                    // slots for a question that a policy's probe may name (Examinee::Expect)
  // `asked` follows --prompt, `plain` never has the chat template.
  std::function<Status(Examinee& asked, Examinee& plain, const SuiteHooks& hooks)> run;
  // If set, the trivial baseline: for every pot one more run, of prompts cut to `cut` tokens that are all kept. Its
  // rows say policy `truncation`.
  std::function<Status(Examinee& asked, int64_t cut, const SuiteHooks& hooks)> run_cut;
  std::string data;                // the folder or file of questions, for rows
  std::set<std::string> finished;  // FinishedRows() with kExamKeys: cells that are left out
};
// What tells the cells of an exam apart in rows and in --resume.
inline constexpr const char* const kExamKeys[] = {"suite", "data", "task",   "model",  "policy", "pot",
                                                  "chunk", "seed", "prompt", "recall", "length", "limit"};
// Loads the model, makes the exam, runs it with every policy and pot, and prints a row for each cell as it is finished.
// If the pot of a policy that must not forget is full, its run ends with the answers up to then.
Status RunExam(const EvalFlags& flags, const std::function<Result<Exam>(const LoadedModel&)>& make);

}  // namespace weir::app
