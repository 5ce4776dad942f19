// SPDX-License-Identifier: Apache-2.0
#include "eval/cider.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/ascii.h"

namespace weir {
namespace {

constexpr int kLongestRun = 4;
constexpr double kSigma = 6;

std::vector<std::string> Words(std::string_view text) {
  constexpr size_t kMost = 1024;
  std::vector<std::string> out(1);
  for (const char c : text) {
    const char lower = AsciiLower(c);
    if ((lower >= 'a' && lower <= 'z') || IsAsciiDigit(c) || static_cast<unsigned char>(c) >= 0x80) {
      out.back() += lower;
    } else if (!out.back().empty()) {
      if (out.size() == kMost) return out;
      out.emplace_back();
    }
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

int RunLength(const std::string& run) { return static_cast<int>(std::count(run.begin(), run.end(), ' ')); }

// A text's weights, their norm for each length of runs, and the length of the text as CIDEr-D counts it: pairs of
// words.
struct Weighted {
  std::map<std::string, double> weights;
  std::array<double, kLongestRun> norm{};
  double n_pairs = 0;
};

Weighted Weigh(const std::map<std::string, int64_t>& counts, const std::map<std::string, int64_t>& n_pictures_of,
               double log_pictures) {
  Weighted out;
  for (const auto& [run, n] : counts) {
    const auto found = n_pictures_of.find(run);
    const double rare =
        log_pictures - (found == n_pictures_of.end() ? 0 : std::log(static_cast<double>(found->second)));
    const double weight = static_cast<double>(n) * rare;
    out.weights[run] = weight;
    const int length = RunLength(run);
    out.norm[static_cast<size_t>(length - 1)] += weight * weight;
    if (length == 2) out.n_pairs += static_cast<double>(n);
  }
  for (double& norm : out.norm) norm = std::sqrt(norm);
  return out;
}

double Similarity(const Weighted& a, const Weighted& gold) {
  std::array<double, kLongestRun> sum{};
  for (const auto& [run, weight] : a.weights) {
    const auto found = gold.weights.find(run);
    if (found == gold.weights.end()) continue;
    sum[static_cast<size_t>(RunLength(run) - 1)] += std::min(weight, found->second) * found->second;
  }
  const double delta = a.n_pairs - gold.n_pairs, penalty = std::exp(-delta * delta / (2 * kSigma * kSigma));
  double mean = 0;
  for (size_t n = 0; n < sum.size(); ++n) {
    if (a.norm[n] > 0 && gold.norm[n] > 0) mean += sum[n] / (a.norm[n] * gold.norm[n]) * penalty / kLongestRun;
  }
  return mean;
}

}  // namespace

Cider::Counts Cider::Count(std::string_view text) {
  const std::vector<std::string> words = Words(text);
  Counts out;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string run;
    for (size_t n = 0; n < kLongestRun && i + n < words.size(); ++n) {
      run += words[i + n] + " ";
      ++out[run];
    }
  }
  return out;
}

void Cider::Add(std::string_view prediction, std::span<const std::string> golds) {
  Picture picture{Count(prediction), {}};
  std::set<std::string> runs;
  for (const std::string& gold : golds) {
    picture.golds.push_back(Count(gold));
    for (const auto& [run, n] : picture.golds.back()) runs.insert(run);
  }
  for (const std::string& run : runs) ++n_pictures_of_[run];
  pictures_.push_back(std::move(picture));
}

std::vector<double> Cider::Scores() const {
  const double log_pictures = std::log(static_cast<double>(std::max<size_t>(pictures_.size(), 1)));
  std::vector<double> out;
  for (const Picture& picture : pictures_) {
    const Weighted prediction = Weigh(picture.prediction, n_pictures_of_, log_pictures);
    double sum = 0;
    for (const Counts& gold : picture.golds) {
      sum += Similarity(prediction, Weigh(gold, n_pictures_of_, log_pictures));
    }
    out.push_back(picture.golds.empty() ? 0 : 10 * sum / static_cast<double>(picture.golds.size()));
  }
  return out;
}

}  // namespace weir
