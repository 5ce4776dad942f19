// SPDX-License-Identifier: Apache-2.0
#include "eval/longmemeval.h"

#include <fmt/core.h>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

namespace weir {
namespace {

using nlohmann::json;

constexpr int32_t kAnswerTokens = 100;

// A text's own white space at both ends removed, as the published program does.
std::string_view Strip(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n\f\v");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n\f\v") + 1 - begin);
}

bool Text(const json& sample, const char* key, std::string* out) {
  if (!sample.is_object() || !sample.contains(key)) return false;
  const json& value = sample[key];
  if (value.is_string()) {
    *out = value.get<std::string>();
  } else if (value.is_number()) {
    *out = value.dump();
  } else {
    return false;
  }
  return true;
}

Result<TextSample> ToSample(const json& sample) {
  TextQuestion question;
  std::string date, answer;
  for (const auto& [key, to] : {std::pair{"question", &question.text}, {"question_date", &date}, {"answer", &answer}}) {
    if (!Text(sample, key, to)) return Corrupt("no text `{}`", key);
  }
  for (const char* key : {"haystack_dates", "haystack_sessions"}) {
    if (!sample.contains(key) || !sample[key].is_array()) return Corrupt("no list `{}`", key);
  }
  const json &dates = sample["haystack_dates"], &sessions = sample["haystack_sessions"];
  if (dates.size() != sessions.size()) {
    return Corrupt("{} `haystack_dates` and {} `haystack_sessions`", dates.size(), sessions.size());
  }
  std::vector<std::pair<std::string, const json*>> in_order;
  for (size_t i = 0; i < dates.size(); ++i) {
    if (!dates[i].is_string() || !sessions[i].is_array()) return Corrupt("session {} has no date or no turns", i);
    in_order.emplace_back(dates[i].get<std::string>(), &sessions[i]);
  }
  std::ranges::stable_sort(in_order, {}, &std::pair<std::string, const json*>::first);
  TextSample out;
  out.context =
      "I will give you several history chats between you and a user. Please answer the question based on the relevant "
      "chat history.\n\n\nHistory Chats:\n\n";
  for (size_t i = 0; i < in_order.size(); ++i) {
    out.context += fmt::format("\n### Session {}:\nSession Date: {}\nSession Content:\n", i + 1, in_order[i].first);
    for (const json& turn : *in_order[i].second) {
      std::string role, content;
      if (!Text(turn, "role", &role) || !Text(turn, "content", &content)) {
        return Corrupt("a turn of session {} without `role` and `content`", i);
      }
      const size_t begin = out.context.size();
      out.context += "\n\n" + role + ": ";
      out.context += Strip(content);
      if (turn.contains("has_answer") && turn["has_answer"] == true)
        out.evidence.push_back({begin, out.context.size()});
    }
    out.context += "\n";
  }
  question.text = fmt::format("\n\nCurrent Date: {}\nQuestion: {}\nAnswer:", date, question.text);
  question.answers = {answer};
  out.questions = {std::move(question)};
  return out;
}

}  // namespace

Result<std::vector<TextTask>> ParseLongMemEval(std::string_view text) {
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_array() || root.empty()) return Corrupt("no list of samples: expected LongMemEval's layout");
  auto samples = std::make_shared<std::vector<TextSample>>();
  std::vector<std::pair<std::string, std::vector<size_t>>> types;  // in the order of the file
  for (size_t i = 0; i < root.size(); ++i) {
    std::string id, type;
    if (!Text(root[i], "question_id", &id) || !Text(root[i], "question_type", &type)) {
      return Corrupt("sample {}: no text `question_id` or `question_type`", i);
    }
    Result<TextSample> sample = ToSample(root[i]);
    if (!sample.ok()) return Corrupt("sample {} ({}): {}", i, id, sample.status().message());
    if (id.ends_with("_abs")) type += "_abs";
    auto at = std::ranges::find(types, type, &std::pair<std::string, std::vector<size_t>>::first);
    if (at == types.end()) at = types.insert(types.end(), {type, {}});
    at->second.push_back(samples->size());
    samples->push_back(std::move(*sample));
  }
  std::vector<TextTask> out;
  for (auto& [type, of_type] : types) {
    TextTask task;
    task.name = type;
    task.metric = "qa_f1";
    task.n = std::ssize(of_type);
    task.n_answer = kAnswerTokens;
    task.sample = [samples, of_type = std::move(of_type)](int64_t i) -> Result<TextSample> {
      return (*samples)[of_type[static_cast<size_t>(i)]];
    };
    out.push_back(std::move(task));
  }
  return out;
}

}  // namespace weir
