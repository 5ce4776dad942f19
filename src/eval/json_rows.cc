// SPDX-License-Identifier: Apache-2.0
#include "eval/json_rows.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace weir {

using nlohmann::json;

Result<std::string> TextOf(const json& row, const char* key) {
  if (!row.is_object() || !row.contains(key) || !row[key].is_string()) return Corrupt("no text `{}`", key);
  return row[key].get<std::string>();
}

std::vector<std::string> TextsOf(const json& row, const char* key) {
  std::vector<std::string> out;
  if (!row.is_object() || !row.contains(key)) return out;
  for (const json& one : row[key].is_array() ? row[key] : json::array({row[key]})) {
    if (one.is_structured()) continue;
    out.push_back(one.is_string() ? one.get<std::string>() : one.dump());
  }
  return out;
}

Result<std::vector<TextSample>> SamplesOf(std::string_view jsonl,
                                          const std::function<Result<TextSample>(const json& row)>& to_sample) {
  std::vector<TextSample> out;
  int64_t n = 0;
  for (size_t at = 0; at < jsonl.size();) {
    const size_t end = std::min(jsonl.find('\n', at), jsonl.size());
    const std::string_view line = jsonl.substr(at, end - at);
    at = end + 1;
    ++n;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<TextSample> sample = to_sample(json::parse(line, nullptr, /*allow_exceptions=*/false));
    if (!sample.ok()) return Corrupt("line {}: {}", n, sample.status().message());
    out.push_back(std::move(*sample));
  }
  if (out.empty()) return Corrupt("the file holds no samples");
  return out;
}

TextTask TaskOf(std::string name, std::string metric, int32_t n_answer, std::vector<TextSample> samples) {
  TextTask out;
  out.name = std::move(name);
  out.metric = std::move(metric);
  out.n = std::ssize(samples);
  out.n_answer = n_answer;
  out.sample = [shared = std::make_shared<std::vector<TextSample>>(std::move(samples))](
                   int64_t i) -> Result<TextSample> { return (*shared)[static_cast<size_t>(i)]; };
  return out;
}

std::string Lettered(const std::vector<std::string>& options) {
  std::string out;
  for (size_t i = 0; i < options.size(); ++i) {
    out += "\n" + std::string(1, static_cast<char>('A' + static_cast<char>(i))) + ". " + options[i];
  }
  return out;
}

Result<std::vector<std::string>> RightOption(const std::vector<std::string>& options, const std::string& right) {
  if (options.size() != 4) return Corrupt("{} `options`, where there are four", options.size());
  const auto at = std::ranges::find(options, right);
  if (at == options.end()) return Corrupt("an `answer` that is none of the `options`");
  return std::vector<std::string>{std::string(1, static_cast<char>('A' + (at - options.begin()))), right};
}

std::string Filled(std::string_view text, const std::vector<std::pair<std::string, std::string>>& marks) {
  std::string out;
  while (!text.empty()) {
    size_t first = text.size();
    const std::pair<std::string, std::string>* found = nullptr;
    for (const auto& mark : marks) {
      if (const size_t at = text.find(mark.first); at < first) {
        first = at;
        found = &mark;
      }
    }
    out += text.substr(0, first);
    if (found == nullptr) break;
    out += found->second;
    text.remove_prefix(first + found->first.size());
  }
  return out;
}

}  // namespace weir
