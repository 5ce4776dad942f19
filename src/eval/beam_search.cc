// SPDX-License-Identifier: Apache-2.0
#include "eval/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace weir {
namespace {

struct Beam {
  std::vector<int32_t> tokens;
  double log_p = 0;
};
// A beam and one more token.
struct Longer {
  double log_p;
  size_t beam;
  int32_t token;
};

bool Before(const Longer& a, const Longer& b) {
  if (a.log_p != b.log_p) return a.log_p > b.log_p;
  return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
}

// Adds the `n_most` likeliest tokens after a beam.
void AddLonger(std::span<const float> logits, size_t beam, double log_p, size_t n_most, std::vector<Longer>* out) {
  float highest = -std::numeric_limits<float>::infinity();
  for (const float x : logits) highest = std::max(highest, x);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - highest);
  const double all = highest + std::log(sum);
  std::vector<Longer> here;
  here.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    // What may not be written has no number, or minus infinity.
    if (std::isfinite(logits[i])) here.push_back({log_p + logits[i] - all, beam, static_cast<int32_t>(i)});
  }
  const size_t n = std::min(n_most, here.size());
  std::partial_sort(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(n), here.end(), Before);
  out->insert(out->end(), here.begin(), here.begin() + static_cast<std::ptrdiff_t>(n));
}

class Search {
 public:
  Search(const BeamOptions& options, const BeamModel& model)
      : options_(options), model_(model), n_beams_(static_cast<size_t>(options.n_beams)) {}

  Result<BeamAnswer> Run(std::span<const float> first) {
    beams_ = {{}};
    AddLonger(first, 0, 0, 2 * n_beams_, &longer_);
    for (int32_t n = 1;; ++n) {
      Grow();
      if (beams_.empty() || n == options_.most_tokens || Over(n)) break;
      std::vector<std::vector<int32_t>> tokens;
      for (const Beam& beam : beams_) tokens.push_back(beam.tokens);
      longer_.clear();
      WEIR_RETURN_IF_ERROR(model_.logits(tokens, [&](size_t i, std::span<const float> logits) {
        AddLonger(logits, i, beams_[i].log_p, 2 * n_beams_, &longer_);
      }));
    }
    // What did not end competes where too few answers did.
    if (answers_.size() < n_beams_) {
      for (const Beam& beam : beams_) Keep(beam);
    }
    if (answers_.empty()) return BeamAnswer();
    return answers_.front();
  }

 private:
  // The next beams, from the likeliest longer ones: of twice as many as there are beams half may end.
  void Grow() {
    std::sort(longer_.begin(), longer_.end(), Before);
    std::vector<Beam> next;
    for (size_t rank = 0; rank < longer_.size() && next.size() < n_beams_; ++rank) {
      Beam beam = beams_[longer_[rank].beam];
      beam.tokens.push_back(longer_[rank].token);
      beam.log_p = longer_[rank].log_p;
      if (!model_.ended(beam.tokens)) {
        next.push_back(std::move(beam));
      } else if (rank < n_beams_) {
        Keep(beam);
      }
    }
    beams_ = std::move(next);
  }
  double Score(double log_p, size_t n) const {
    return log_p / std::pow(static_cast<double>(n), options_.length_penalty);
  }
  void Keep(const Beam& beam) {
    BeamAnswer answer{beam.tokens, Score(beam.log_p, beam.tokens.size())};
    const auto at = std::upper_bound(answers_.begin(), answers_.end(), answer,
                                     [](const BeamAnswer& a, const BeamAnswer& b) { return a.score > b.score; });
    answers_.insert(at, std::move(answer));
    if (answers_.size() > n_beams_) answers_.pop_back();
  }
  // Whether no beam of n tokens can become better than the worst answer: a longer one has no higher sum, and with a
  // penalty above 0 at best the longest answer's divisor.
  bool Over(int32_t n) const {
    if (answers_.size() < n_beams_) return false;
    const int32_t longest = options_.length_penalty > 0 ? options_.most_tokens : n + 1;
    return Score(beams_.front().log_p, static_cast<size_t>(longest)) <= answers_.back().score;
  }

  const BeamOptions& options_;
  const BeamModel& model_;
  const size_t n_beams_;
  std::vector<Beam> beams_;  // the likeliest first
  std::vector<Longer> longer_;
  std::vector<BeamAnswer> answers_;  // the best first
};

}  // namespace

Result<BeamAnswer> SearchBeams(const BeamOptions& options, std::span<const float> first, const BeamModel& model) {
  return Search(options, model).Run(first);
}

}  // namespace weir
