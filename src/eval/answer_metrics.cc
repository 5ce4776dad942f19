// SPDX-License-Identifier: Apache-2.0
#include "eval/answer_metrics.h"

#include <algorithm>
#include <numeric>

#include "base/ascii.h"
#include "base/utf8.h"
#include "eval/longbench_metrics.h"

namespace weir {
namespace {

// A comma between digits: the published evaluation then deletes all punctuation instead of making spaces of it.
bool HasDigitComma(std::string_view text) {
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == ',' && IsAsciiDigit(text[i - 1]) && IsAsciiDigit(text[i + 1])) return true;
  }
  return false;
}

std::string WithoutPunctuation(const std::string& text) {
  constexpr std::string_view kMarks = ";/[]\"{}()=+\\_-><@`,?!";
  const bool digit_comma = HasDigitComma(text);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (kMarks.find(c) != std::string_view::npos) {
      const bool beside_space =
          text.find(std::string{c, ' '}) != std::string::npos || text.find(std::string{' ', c}) != std::string::npos;
      if (!beside_space && !digit_comma) out += ' ';
    } else if (c == '.' ? i + 1 < text.size() && IsAsciiDigit(text[i + 1]) : c != '\'') {
      out += c;
    }
  }
  return out;
}

std::u32string Characters(const std::string& text) {
  constexpr size_t kMost = 4096;
  std::u32string out;
  for (size_t at = 0; at < text.size() && out.size() < kMost;) {
    const Utf8Char c = DecodeUtf8(text, at);
    out += c.cp;
    at += static_cast<size_t>(c.bytes);
  }
  return out;
}

// Insertions, deletions and replacements that make one text the other (Levenshtein 1966), one row of the table.
size_t EditDistance(const std::u32string& a, const std::u32string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t above_left = row[0];
    row[0] = i + 1;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j], replaced = above_left + (a[i] != b[j - 1]);
      row[j] = std::min({row[j - 1] + 1, above + 1, replaced});
      above_left = above;
    }
  }
  return row[b.size()];
}

template <typename Score>
double Best(std::span<const std::string> golds, Score score) {
  double best = 0;
  for (const std::string& gold : golds) best = std::max<double>(best, score(gold));
  return best;
}

constexpr std::string_view kMetrics[] = {"exact", "vqa", "anls", "f1", "rouge_l", "cider", "contains"};

}  // namespace

std::string PlainText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!IsAsciiSpace(c)) {
      out += AsciiLower(c);
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

bool ExactMatch(std::string_view prediction, std::string_view gold) {
  const auto plain = [](std::string_view text) {
    std::string out = PlainText(text);
    if (out.size() > 1 && out.back() == '.') out.pop_back();
    return out;
  };
  return plain(prediction) == plain(gold);
}

bool Contains(std::string_view prediction, std::string_view gold) {
  const std::string wanted = PlainText(gold);
  return !wanted.empty() && PlainText(prediction).find(wanted) != std::string::npos;
}

std::string VqaText(std::string_view text) {
  constexpr std::string_view kNumbers[] = {"zero", "one",   "two",   "three", "four", "five",
                                           "six",  "seven", "eight", "nine",  "ten"};
  const std::string plain = PlainText(WithoutPunctuation(PlainText(text)));
  std::string out;
  for (size_t at = 0; at < plain.size();) {
    const size_t end = std::min(plain.find(' ', at), plain.size());
    std::string_view word = std::string_view(plain).substr(at, end - at);
    at = end + 1;
    if (word == "a" || word == "an" || word == "the") continue;
    if (!out.empty()) out += ' ';
    const auto number = std::find(std::begin(kNumbers), std::end(kNumbers), word == "none" ? "zero" : word);
    out += number == std::end(kNumbers) ? std::string(word) : std::to_string(number - std::begin(kNumbers));
  }
  return out;
}

double VqaAccuracy(std::string_view prediction, std::span<const std::string> golds) {
  const std::string answer = VqaText(prediction);
  const auto equal = [&](const std::string& gold) { return VqaText(gold) == answer; };
  const auto n_equal = static_cast<double>(std::count_if(golds.begin(), golds.end(), equal));
  const auto n = static_cast<double>(golds.size());
  if (n < 4) return n_equal > 0 ? 1 : 0;
  // Leave out one of the equal answers, or one of the others.
  return (n_equal * std::min(1.0, (n_equal - 1) / 3) + (n - n_equal) * std::min(1.0, n_equal / 3)) / n;
}

double Anls(std::string_view prediction, std::span<const std::string> golds) {
  const std::u32string answer = Characters(PlainText(prediction));
  return Best(golds, [&](const std::string& gold) {
    const std::u32string wanted = Characters(PlainText(gold));
    const size_t longer = std::max(answer.size(), wanted.size());
    if (longer == 0) return 1.0;
    const double similar = 1 - static_cast<double>(EditDistance(answer, wanted)) / static_cast<double>(longer);
    return similar > 0.5 ? similar : 0.0;
  });
}

Status CheckAnswerMetric(std::string_view metric) {
  if (std::find(std::begin(kMetrics), std::end(kMetrics), metric) != std::end(kMetrics)) return Status();
  return Unsupported("metric '{}'; known: exact, vqa, anls, f1, rouge_l, cider, contains", metric);
}

Result<double> AnswerScore(std::string_view metric, std::string_view prediction, std::span<const std::string> golds) {
  if (golds.empty()) return InvalidArgument("no gold answer to compare with");
  if (metric == "exact") return Best(golds, [&](const std::string& gold) { return ExactMatch(prediction, gold); });
  if (metric == "contains") return Best(golds, [&](const std::string& gold) { return Contains(prediction, gold); });
  if (metric == "vqa") return VqaAccuracy(prediction, golds);
  if (metric == "anls") return Anls(prediction, golds);
  if (metric == "f1") return Best(golds, [&](const std::string& gold) { return QaF1(prediction, gold); });
  if (metric == "rouge_l") return Best(golds, [&](const std::string& gold) { return RougeL(prediction, gold); });
  if (metric == "cider") return Unsupported("cider is no score of a single answer");
  return CheckAnswerMetric(metric);
}

}  // namespace weir
