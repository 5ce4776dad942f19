// SPDX-License-Identifier: Apache-2.0
// Times in buckets, with the newest traced request of each bucket. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "serve/metric_family.h"

namespace weir {

class LatencyHistogram {
 public:
  // `bounds`: upper ones in seconds, in ascending order, at most kMostBounds; they must outlive it.
  explicit LatencyHistogram(std::span<const double> bounds) : bounds_(bounds) {}

  // `traced` (its value is filled in): the request, if it is traced.
  void Observe(double seconds, std::optional<Exemplar> traced) {
    size_t bucket = 0;
    while (bucket < bounds_.size() && seconds > bounds_[bucket]) ++bucket;
    ++counts_[bucket];
    sum_ += seconds;
    if (!traced) return;
    traced->value = seconds;
    exemplars_[bucket] = std::move(traced);
  }
  MetricFamily Family(const char* name, const char* help) const {
    const auto n = static_cast<ptrdiff_t>(bounds_.size() + 1);
    return {
        name,
        MetricFamily::Type::kHistogram,
        help,
        {},
        MetricHistogram{
            {}, bounds_, {counts_.begin(), counts_.begin() + n}, sum_, {exemplars_.begin(), exemplars_.begin() + n}}};
  }

 private:
  static constexpr size_t kMostBounds = 15;
  std::span<const double> bounds_;
  std::array<int64_t, kMostBounds + 1> counts_{};
  std::array<std::optional<Exemplar>, kMostBounds + 1> exemplars_;
  double sum_ = 0;
};

}  // namespace weir
