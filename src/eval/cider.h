// SPDX-License-Identifier: Apache-2.0
// CIDEr: how much a description agrees with human descriptions of the same picture, measured on n-grams of one to four
// words, weighted by their rarity over all pictures. Vedantam et al., "CIDEr: Consensus-based Image Description
// Evaluation" (CVPR 2015), in the form CIDEr-D (its section 5.1) that tables of captions report: clipped counts, a
// Gaussian penalty (sigma 6) on the difference in length, times 10.
//
//   g_n(w)  = count of w in the text * (log N - log max(1, pictures whose references contain w))
//   sim_n   = sum_w min(g_n(w), r_n(w)) r_n(w) / (|g_n| |r_n|) * exp(-(difference in length)^2 / 72)
//   CIDEr   = 10 * mean over references of the mean over n of sim_n
//
// Words are runs of ASCII letters, digits and non-ASCII characters, in lower case; the published evaluation runs a
// treebank tokenizer, which differs in contractions and hyphens. Texts are truncated to 1,024 words.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <span>

namespace weir {

class Cider {
 public:
  // Adds a prediction for a picture and its references.
  void Add(std::string_view prediction, std::span<const std::string> golds);
  // One score per picture, 0 to 10, in the order of Add(). All 0 for a single picture, since no word is rare then.
  std::vector<double> Scores() const;

 private:
  using Counts = std::map<std::string, int64_t>;  // runs of words, each word followed by a space
  struct Picture {
    Counts prediction;
    std::vector<Counts> golds;
  };
  static Counts Count(std::string_view text);
  std::vector<Picture> pictures_;
  std::map<std::string, int64_t> n_pictures_of_;  // whose references contain the run
};

}  // namespace weir
