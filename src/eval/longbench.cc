// SPDX-License-Identifier: Apache-2.0
#include "eval/longbench.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "eval/longbench_metrics.h"

namespace weir {

Result<std::vector<LongBenchSample>> ParseLongBench(std::string_view jsonl) {
  constexpr int64_t kMaxAnswer = 4096;
  std::vector<LongBenchSample> out;
  int64_t n = 0;
  for (size_t at = 0; at < jsonl.size();) {
    const size_t end = std::min(jsonl.find('\n', at), jsonl.size());
    const std::string_view line = jsonl.substr(at, end - at);
    at = end + 1;
    ++n;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    LongBenchSample sample;
    const auto text = [&](const char* key, std::string* value) {
      if (!row.is_object() || !row.contains(key) || !row[key].is_string()) return false;
      *value = row[key].get<std::string>();
      return true;
    };
    bool good = text("dataset", &sample.dataset) && text("metric", &sample.metric) && text("prompt", &sample.prompt) &&
                row.contains("answers") && row["answers"].is_array() && row.contains("max_new_tokens") &&
                row["max_new_tokens"].is_number_integer();
    if (good) {
      for (const nlohmann::json& answer : row["answers"]) {
        good = good && answer.is_string();
        if (good) sample.answers.push_back(answer.get<std::string>());
      }
      if (row.contains("all_classes") && row["all_classes"].is_array()) {
        for (const nlohmann::json& name : row["all_classes"]) {
          good = good && name.is_string();
          if (good) sample.all_classes.push_back(name.get<std::string>());
        }
      }
      const int64_t most = row["max_new_tokens"].get<int64_t>();
      good = good && !sample.answers.empty() && most >= 1 && most <= kMaxAnswer;
      if (good) sample.max_new_tokens = static_cast<int32_t>(most);
    }
    if (!good) {
      return Corrupt("line {} is no sample: expected `dataset`, `metric`, `prompt`, `answers` and `max_new_tokens`", n);
    }
    out.push_back(std::move(sample));
  }
  if (out.empty()) return Corrupt("the file holds no samples");
  return out;
}

bool IsCompletionTask(std::string_view dataset) {
  return IsFewShotTask(dataset) || dataset == "lcc" || dataset == "repobench-p";
}

bool IsFewShotTask(std::string_view dataset) {
  constexpr std::string_view kTasks[] = {"trec", "triviaqa", "samsum", "lsht"};
  return std::find(std::begin(kTasks), std::end(kTasks), dataset) != std::end(kTasks);
}

void CutMiddle(std::vector<int32_t>* tokens, int64_t max_tokens) {
  const int64_t n = static_cast<int64_t>(tokens->size()), half = max_tokens / 2;
  if (max_tokens <= 0 || n <= max_tokens) return;
  tokens->erase(tokens->begin() + half, tokens->end() - half);
}

Status RunLongBench(Examinee& completion, Examinee& chat, std::span<const LongBenchSample> samples,
                    const LongBenchOptions& options, const SuiteHooks& hooks) {
  // Tasks in the order of the file.
  std::vector<std::pair<std::string, std::vector<const LongBenchSample*>>> tasks;
  int64_t total = 0, asked = 0;
  for (const LongBenchSample& sample : samples) {
    const auto& wanted = options.datasets;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), sample.dataset) == wanted.end()) continue;
    auto task = std::find_if(tasks.begin(), tasks.end(), [&](const auto& t) { return t.first == sample.dataset; });
    if (task == tasks.end()) task = tasks.insert(tasks.end(), {sample.dataset, {}});
    if (options.n > 0 && task->second.size() >= static_cast<size_t>(options.n)) continue;
    task->second.push_back(&sample);
    ++total;
  }
  if (tasks.empty()) return InvalidArgument("the file holds no sample of these tasks");
  for (const auto& [dataset, mine] : tasks) {
    Cell cell;
    cell.task = dataset;
    cell.metric = mine[0]->metric;
    const bool goes_on = IsCompletionTask(dataset);
    Examinee& examinee = goes_on ? completion : chat;
    const auto trial = [&](const LongBenchSample& sample) -> Status {
      WEIR_RETURN_IF_ERROR(examinee.Begin());
      std::vector<int32_t> tokens = examinee.Encode(sample.prompt);
      CutMiddle(&tokens, options.max_tokens);
      const size_t n_read = tokens.size() - std::min(tokens.size(), kLongBenchQuestion);
      Question question;
      question.tokens.assign(tokens.begin() + static_cast<int64_t>(n_read), tokens.end());
      question.n_answer =
          options.max_answer > 0 ? std::min(options.max_answer, sample.max_new_tokens) : sample.max_new_tokens;
      WEIR_RETURN_IF_ERROR(examinee.Expect(question));
      WEIR_RETURN_IF_ERROR(examinee.ReadTokens({tokens.data(), n_read}));
      WEIR_ASSIGN_OR_RETURN(const Reply reply, examinee.Ask(question));
      std::string_view answer = reply.text;
      if (IsFewShotTask(sample.dataset)) {
        answer.remove_prefix(std::min(answer.find_first_not_of('\n'), answer.size()));
        answer = answer.substr(0, answer.find('\n'));
      }
      WEIR_ASSIGN_OR_RETURN(const double score,
                            LongBenchScore(sample.metric, answer, sample.answers, sample.all_classes));
      cell.score.Add(score);
      if (hooks.progress) hooks.progress(++asked, total);
      return Status();
    };
    Status status;
    for (size_t i = 0; i < mine.size() && status.ok(); ++i) status = trial(*mine[i]);
    ReportAll({cell}, hooks);
    WEIR_RETURN_IF_ERROR(status);
  }
  return Status();
}

}  // namespace weir
