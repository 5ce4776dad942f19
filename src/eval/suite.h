// SPDX-License-Identifier: Apache-2.0
// Shared by the suites: figures with their errors, cells, seeds.
//
// A suite is a function that asks an Examinee (eval/examinee.h) questions and reports one Cell per combination of its
// parameters. Every question depends only on Rng(seed, trial number), so that all policies, pots and machines get the
// same questions.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace weir {

// Mean and its standard error, in one pass (Welford 1962).
class RunningMean {
 public:
  void Add(double x) {
    ++n_;
    const double delta = x - mean_;
    mean_ += delta / static_cast<double>(n_);
    m2_ += delta * (x - mean_);
  }
  int64_t n() const { return n_; }
  double mean() const { return mean_; }
  // Of the mean: sample standard deviation / sqrt(n). 0 below two samples.
  double std_error() const {
    return n_ > 1 ? std::sqrt(m2_ / static_cast<double>(n_ - 1) / static_cast<double>(n_)) : 0;
  }

 private:
  double mean_ = 0, m2_ = 0;
  int64_t n_ = 0;
};

// One result of a suite: the parameters and the figures.
struct Cell {
  std::string task, metric = "accuracy";
  std::vector<std::pair<std::string, double>> numbers;      // parameters: distance, depth, length ...
  std::vector<std::pair<std::string, std::string>> labels;  // parameters that are words
  RunningMean score;                                        // the metric; accuracies in [0, 1]
  RunningMean gold_nll;     // -log P of the right answer, mean over its tokens: tells policies apart before answers do
  RunningMean tokens_back;  // between the end of the text in question and the question; empty if meaningless
  std::vector<std::pair<std::string, RunningMean>> more;  // what else a suite measures beside the metric
  int64_t n_wanted = 0;  // trials of the whole cell, so that one that was stopped can be told; 0: not said
};

struct SuiteHooks {
  std::function<void(const Cell&)> report;                              // required: called for each finished cell
  std::function<void(int64_t questions_done, int64_t total)> progress;  // may be empty
  // Whether an earlier run finished a cell with these names and parameters (--resume); may be empty.
  std::function<bool(const Cell&)> finished;
};

// Reports all non-empty cells, finished or not, for a run that was stopped.
inline void ReportAll(const std::vector<Cell>& cells, const SuiteHooks& hooks) {
  for (const Cell& cell : cells) {
    if (cell.score.n() > 0) hooks.report(cell);
  }
}

// Material of trial `trial`. Neighbouring numbers give unrelated sequences: Rng scrambles its seed.
inline Rng TrialRng(uint64_t seed, uint64_t trial) { return Rng(seed * 0xd1342543de82ef95u + trial + 1); }

}  // namespace weir
