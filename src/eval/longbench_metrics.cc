// SPDX-License-Identifier: Apache-2.0
#include "eval/longbench_metrics.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <vector>

#include "base/ascii.h"
#include "eval/text_match.h"

namespace weir {
namespace {

using Words = std::vector<std::string>;

bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

Words Split(std::string_view text) {
  Words out;
  for (size_t at = 0; at < text.size();) {
    while (at < text.size() && IsSpace(text[at])) ++at;
    size_t end = at;
    while (end < text.size() && !IsSpace(text[end])) ++end;
    if (end > at) out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

Words NormalWords(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    const unsigned char u = static_cast<unsigned char>(c);
    if (u < 0x80 && std::ispunct(u)) continue;
    plain += AsciiLower(c);
  }
  Words words = Split(plain);
  std::erase_if(words, [](const std::string& word) { return word == "a" || word == "an" || word == "the"; });
  return words;
}

double F1(size_t n_common, size_t n_prediction, size_t n_gold) {
  if (n_common == 0) return 0;
  const double precision = static_cast<double>(n_common) / static_cast<double>(n_prediction),
               recall = static_cast<double>(n_common) / static_cast<double>(n_gold);
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

double QaF1(std::string_view prediction, std::string_view gold) {
  const Words words = NormalWords(prediction), gold_words = NormalWords(gold);
  std::map<std::string, size_t> left;
  for (const std::string& word : gold_words) ++left[word];
  size_t n_common = 0;
  for (const std::string& word : words) {
    const auto at = left.find(word);
    if (at == left.end() || at->second == 0) continue;
    --at->second;
    ++n_common;
  }
  return F1(n_common, words.size(), gold_words.size());
}

double RougeL(std::string_view prediction, std::string_view gold) {
  constexpr size_t kMaxWords = 8192;
  Words a = Split(prediction), b = Split(gold);
  if (a.size() > kMaxWords) a.resize(kMaxWords);
  if (b.size() > kMaxWords) b.resize(kMaxWords);
  // One row of the table of longest common subsequences.
  std::vector<size_t> row(b.size() + 1, 0);
  for (const std::string& word : a) {
    size_t above_left = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = word == b[j - 1] ? above_left + 1 : std::max(row[j], row[j - 1]);
      above_left = above;
    }
  }
  return F1(row[b.size()], a.size(), b.size());
}

double ClassShare(std::string_view prediction, std::string_view gold, std::span<const std::string> classes) {
  size_t n = 0;
  bool right = false;
  for (const std::string& name : classes) {
    if (prediction.find(name) == std::string_view::npos) continue;
    if (name != gold && gold.find(name) != std::string_view::npos) continue;
    ++n;
    right |= name == gold;
  }
  return right ? 1.0 / static_cast<double>(n) : 0;
}

double CodeSimilarity(std::string_view prediction, std::string_view gold) {
  constexpr size_t kMaxBytes = 4096;
  std::string_view line;
  for (size_t at = std::min(prediction.find_first_not_of('\n'), prediction.size()); at < prediction.size();) {
    const size_t end = std::min(prediction.find('\n', at), prediction.size());
    const std::string_view next = prediction.substr(at, end - at);
    at = end + 1;
    if (next.find_first_of("`#") != std::string_view::npos || next.find("//") != std::string_view::npos) continue;
    line = next;
    break;
  }
  const std::string_view a = line.substr(0, kMaxBytes), b = gold.substr(0, kMaxBytes);
  if (a.empty() || b.empty()) return 0;
  std::vector<size_t> row(b.size() + 1, 0);
  for (const char c : a) {
    size_t above_left = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = c == b[j - 1] ? above_left + 1 : std::max(row[j], row[j - 1]);
      above_left = above;
    }
  }
  return std::round(200.0 * static_cast<double>(row[b.size()]) / static_cast<double>(a.size() + b.size())) / 100;
}

double IntegerShare(std::string_view prediction, std::string_view gold) {
  const auto wanted = FirstInteger(gold);
  if (!wanted.has_value()) return 0;
  size_t n = 0, n_right = 0;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  for (auto at = prediction.begin(); (at = std::find_if(at, prediction.end(), digit)) != prediction.end();) {
    const auto end = std::find_if_not(at, prediction.end(), digit);
    ++n;
    n_right += FirstInteger({at, end}) == wanted;
    at = end;
  }
  return n == 0 ? 0 : static_cast<double>(n_right) / static_cast<double>(n);
}

Result<double> LongBenchScore(std::string_view metric, std::string_view prediction, std::span<const std::string> golds,
                              std::span<const std::string> classes) {
  double (*score)(std::string_view, std::string_view) = nullptr;
  if (metric == "qa_f1") score = QaF1;
  if (metric == "rouge") score = RougeL;
  if (metric == "retrieval" || metric == "retrieval_zh" || metric == "count") score = IntegerShare;
  if (metric == "code_sim") score = CodeSimilarity;
  const bool classified = metric == "classification";
  if (score == nullptr && !classified) {
    return Unsupported("metric '{}'; known: qa_f1, rouge, retrieval, retrieval_zh, count, classification, code_sim",
                       metric);
  }
  if (golds.empty()) return InvalidArgument("no gold answer to compare with");
  double best = 0;
  if (classified) {
    if (classes.empty()) return InvalidArgument("classification needs the names of all classes (`all_classes`)");
    for (const std::string& gold : golds) best = std::max(best, ClassShare(prediction, gold, classes));
    return best;
  }
  for (const std::string& gold : golds) best = std::max(best, score(prediction, gold));
  return best;
}

}  // namespace weir
