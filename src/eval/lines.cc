// SPDX-License-Identifier: Apache-2.0
#include "eval/lines.h"

#include <fmt/core.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "eval/words.h"

namespace weir {

LineSource::LineSource(LineKeys keys, uint64_t seed) : keys_(keys), rng_(seed) {
  if (keys == LineKeys::kNumber) return;
  order_.resize(static_cast<size_t>(n_keys()));
  std::iota(order_.begin(), order_.end(), 0);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng_.Below(i)]);
}

int64_t LineSource::n_keys() const {
  switch (keys_) {
    case LineKeys::kNumber:
      return INT64_MAX;
    case LineKeys::kPair:
      return static_cast<int64_t>(Adjectives().size() * Nouns().size());
    case LineKeys::kWord:
      return static_cast<int64_t>(Nouns().size());
  }
  return 0;
}

std::string LineSource::Name(int64_t idx) const {
  if (keys_ == LineKeys::kWord) return std::string(Nouns()[idx]);
  const int64_t n_nouns = static_cast<int64_t>(Nouns().size());
  return std::string(Adjectives()[idx / n_nouns]) + "-" + std::string(Nouns()[idx % n_nouns]);
}

Line LineSource::Next() {
  Line line;
  if (keys_ == LineKeys::kNumber) {
    line.key = std::to_string(++n_);
  } else {
    const int64_t n = static_cast<int64_t>(order_.size()), at = n_++ % n;
    // The half that was just used up is reshuffled while the other half is in use: a key stays half a pass away from
    // its last use.
    if (at == n / 2 && n_ > 1) {
      for (int64_t i = n / 2; i > 1; --i) std::swap(order_[i - 1], order_[rng_.Below(static_cast<uint64_t>(i))]);
    } else if (at == 0 && n_ > 1) {
      for (int64_t i = n; i > n / 2 + 1; --i) {
        std::swap(order_[i - 1], order_[n / 2 + static_cast<int64_t>(rng_.Below(static_cast<uint64_t>(i - n / 2)))]);
      }
    }
    line.key = Name(order_[at]);
  }
  line.value = 1 + static_cast<int32_t>(rng_.Below(kMaxLineValue));
  return line;
}

std::string LinesHeader() {
  return "Below is a record of lines I want you to remember. Every line has a name and a number. I will ask you for "
         "the "
         "number of some line.\n\n";
}

std::string LineText(LineFormat format, const Line& line) {
  switch (format) {
    case LineFormat::kRegister:
      return fmt::format("The REGISTER_CONTENT in line {} is <{}>\n", line.key, line.value);
    case LineFormat::kLongEval:
      return fmt::format("line {}: REGISTER_CONTENT is <{}>\n", line.key, line.value);
    case LineFormat::kPlain:
      return fmt::format("{}: {}\n", line.key, line.value);
  }
  return "";
}

Question LineQuestion(LineFormat format, const Line& line) {
  Question out;
  const std::string whole = LineText(format, line), value = std::to_string(line.value);
  const size_t value_at = whole.rfind(value);
  // A space before the value belongs to the answer: tokens carry it.
  const size_t answer_at = whole[value_at - 1] == ' ' ? value_at - 1 : value_at;
  out.completion = whole.substr(0, answer_at);
  out.gold = whole.substr(answer_at, value_at - answer_at + value.size());
  const char* const what = format == LineFormat::kPlain ? "number of" : "<REGISTER_CONTENT> in";
  out.chat = fmt::format("\nNow the record is over. What is the {} line {}? Answer with the number.", what, line.key);
  out.number = true;
  return out;
}

LinesPrompt MakeLinesPrompt(LineKeys keys, int32_t n_lines, uint64_t seed) {
  LinesPrompt out;
  Rng rng(seed);
  LineSource source(keys, rng.Next());
  for (int32_t i = 0; i < n_lines; ++i) out.lines.push_back(source.Next());
  if (n_lines > 0) out.target = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(n_lines)));
  return out;
}

Result<std::vector<LinesCase>> ParseLinesCases(std::string_view jsonl) {
  std::vector<LinesCase> out;
  int64_t n = 0;
  for (size_t at = 0; at < jsonl.size();) {
    const size_t end = std::min(jsonl.find('\n', at), jsonl.size());
    const std::string_view line = jsonl.substr(at, end - at);
    at = end + 1;
    ++n;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto has = [&](const char* key) { return row.is_object() && row.contains(key); };
    if (!has("prompt") || !row["prompt"].is_string() || !has("expected_number") ||
        !row["expected_number"].is_number_integer()) {
      return Corrupt("line {} is no object with `prompt` and `expected_number`", n);
    }
    LinesCase one;
    one.prompt = row["prompt"].get<std::string>();
    one.expected = row["expected_number"].get<int64_t>();
    if (has("num_lines") && row["num_lines"].is_number_integer()) {
      const int64_t lines = row["num_lines"].get<int64_t>();
      if (lines > 0 && lines <= INT32_MAX) one.n_lines = static_cast<int32_t>(lines);
    }
    out.push_back(std::move(one));
  }
  if (out.empty()) return Corrupt("the file holds no cases");
  return out;
}

}  // namespace weir
