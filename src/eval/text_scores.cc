// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "base/ascii.h"
#include "eval/longbench_metrics.h"
#include "eval/text_tasks.h"

namespace weir {
namespace {

using Golds = std::span<const std::string>;

bool IsPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// Words ended by white space or by one of `more`.
std::vector<std::string> Split(std::string_view text, std::string_view more = {}) {
  std::vector<std::string> out;
  const auto ends = [&](char c) { return IsAsciiSpace(c) || more.find(c) != std::string_view::npos; };
  for (size_t at = 0; at < text.size();) {
    while (at < text.size() && ends(text[at])) ++at;
    size_t end = at;
    while (end < text.size() && !ends(text[end])) ++end;
    if (end > at) out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

// SQuAD's form of an answer (1606.05250, section 6.1), which HELMET compares.
std::string Normal(std::string_view text) {
  std::string plain;
  for (const char c : AsciiLower(text)) {
    if (!IsPunctuation(c)) plain += c;
  }
  std::string out;
  for (const std::string& word : Split(plain)) {
    if (word == "a" || word == "an" || word == "the") continue;
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

double All(std::string_view reply, Golds answers) {
  const std::string text = AsciiLower(reply);
  const auto n = std::ranges::count_if(
      answers, [&](const std::string& answer) { return text.find(AsciiLower(answer)) != std::string::npos; });
  return static_cast<double>(n) / static_cast<double>(answers.size());
}

double Part(std::string_view reply, Golds answers) { return All(reply, answers) > 0 ? 1 : 0; }

double Exact(std::string_view reply, Golds answers) {
  const std::string text = Normal(reply);
  return std::ranges::any_of(answers, [&](const std::string& answer) { return Normal(answer) == text; }) ? 1 : 0;
}

double Contains(std::string_view reply, Golds answers) {
  const std::string text = Normal(reply);
  return std::ranges::any_of(answers,
                             [&](const std::string& answer) { return text.find(Normal(answer)) != std::string::npos; })
             ? 1
             : 0;
}

double FirstNumber(std::string_view reply, Golds answers) {
  const auto begin = std::ranges::find_if(reply, IsAsciiDigit);
  const std::string number(begin, std::find_if_not(begin, reply.end(), IsAsciiDigit));
  return number == answers.front() ? 1 : 0;
}

constexpr std::string_view kMarks = "\n:\"'.,?!{}";

// InfiniteBench's kv_retrieval: the answer is one of the words between marks.
double Word(std::string_view reply, Golds answers) {
  const std::vector<std::string> words = Split(reply, kMarks);
  return std::ranges::find(words, answers.front()) != words.end() ? 1 : 0;
}

double UpperWord(std::string_view reply, Golds answers) {
  std::string upper(reply);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return Word(upper, answers);
}

// InfiniteBench's longbook_choice_eng: the first letter; else what follows a phrase; else the first letter that is a
// word.
double BookChoice(std::string_view reply, Golds answers) {
  const auto is = [&](std::string_view text) { return std::ranges::find(answers, text) != answers.end(); };
  while (!reply.empty() && IsAsciiSpace(reply.front())) reply.remove_prefix(1);
  while (!reply.empty() && IsAsciiSpace(reply.back())) reply.remove_suffix(1);
  if (reply.empty()) return 0;
  if (reply.front() >= 'A' && reply.front() <= 'D') return is(reply.substr(0, 1)) ? 1 : 0;
  if (is(reply)) return 1;
  std::string plain;
  for (const char c : reply) {
    const char next = std::string_view("\n\"'.,?!{}").find(c) != std::string_view::npos ? ' ' : c;
    if (next != ' ' || plain.empty() || plain.back() != ' ') plain += next;
  }
  for (const std::string_view phrase : {"answer is:", "answer:", "answer is", "option is"}) {
    const size_t at = plain.find(phrase);
    if (at == std::string::npos) continue;
    if (plain.size() < at + phrase.size() + 1) return 0;
    const std::string_view behind = std::string_view(plain).substr(at + phrase.size() + 1);
    return std::ranges::any_of(answers, [&](const std::string& answer) { return behind.starts_with(answer); }) ? 1 : 0;
  }
  for (const std::string& word : Split(plain)) {
    if (std::string_view("ABCD").find(word) != std::string_view::npos) return is(word) ? 1 : 0;
  }
  return 0;
}

// A letter anywhere, or a value.
double Letter(std::string_view reply, Golds answers) {
  return reply.find(answers.front()) != std::string_view::npos ? 1 : 0;
}

double Initial(std::string_view reply, Golds answers) { return reply.substr(0, 1) == answers.front() ? 1 : 0; }

double Digits(std::string_view reply, Golds answers) {
  std::string digits;
  std::ranges::copy_if(reply, std::back_inserter(digits), IsAsciiDigit);
  return digits == answers.front() ? 1 : 0;
}

double YesNo(std::string_view reply, Golds answers) {
  return reply == answers.front().substr(0, 1) || reply.find(answers.front()) != std::string_view::npos ? 1 : 0;
}

}  // namespace

Result<double> TextScore(std::string_view metric, std::string_view reply, Golds answers) {
  if (answers.empty()) return InvalidArgument("no right answer to compare with");
  constexpr struct {
    std::string_view name;
    double (*score)(std::string_view, Golds);
  } kScores[] = {{"all", All},
                 {"part", Part},
                 {"em", Exact},
                 {"sub_em", Contains},
                 {"first_number", FirstNumber},
                 {"word", Word},
                 {"upper_word", UpperWord},
                 {"book_choice", BookChoice},
                 {"letter", Letter},
                 {"contains", Letter},
                 {"digits", Digits},
                 {"yes_no", YesNo},
                 {"initial", Initial}};
  for (const auto& [name, score] : kScores) {
    if (metric == name) return score(reply, answers);
  }
  return LongBenchScore(metric, reply, answers);
}

}  // namespace weir
