// SPDX-License-Identifier: Apache-2.0
#include "text/sampler.h"

#include <algorithm>
#include <cmath>

namespace weir {
namespace {

constexpr int32_t kMaxRecent = 1 << 20;
constexpr int32_t kAllRecent = 1'000'000;  // a history that a saved session can hold

// SplitMix64 (Steele, Lea, Flood 2014): one addition of state, all bits good.
uint64_t NextRandom(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

// In [0, 1), from the upper 53 bits: exact in a double on every machine.
double NextUniform(uint64_t* state) { return static_cast<double>(NextRandom(state) >> 11) * 0x1p-53; }

bool MoreLikely(const Sampler::Candidate& a, const Sampler::Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

Status NotUsable(int32_t id, float logit) {
  return Corrupt("the logit of token {} is {:g}: the model's output is not usable", id, logit);
}

// Fills `probability` from the logits divided by `temperature`. REQUIRES: the first candidate has the largest logit.
void Softmax(std::vector<Sampler::Candidate>* candidates, double temperature) {
  const double best = candidates->front().logit;
  double sum = 0;
  for (auto& c : *candidates) sum += c.probability = std::exp((c.logit - best) / temperature);
  for (auto& c : *candidates) c.probability /= sum;
}

}  // namespace

Status SamplerOptions::Validate() const {
  if (!std::isfinite(temperature)) return InvalidArgument("temperature is {:g}; it must be finite", temperature);
  if (!(top_p > 0 && top_p <= 1)) return InvalidArgument("top-p is {:g}; it must be above 0 and at most 1", top_p);
  if (!(min_p >= 0 && min_p <= 1)) return InvalidArgument("min-p is {:g}; it must be from 0 to 1", min_p);
  if (!(repeat_penalty > 0 && std::isfinite(repeat_penalty))) {
    return InvalidArgument("repeat penalty is {:g}; it must be above 0 and finite", repeat_penalty);
  }
  if (repeat_last_n < -1 || repeat_last_n > kMaxRecent) {
    return InvalidArgument("repeat last n is {}; it must be from 0 to {}, or -1 for all", repeat_last_n, kMaxRecent);
  }
  return Status();
}

Result<Sampler> Sampler::Create(const SamplerOptions& options) {
  WEIR_RETURN_IF_ERROR(options.Validate());
  return Sampler(options);
}

void Sampler::Reset() {
  rng_ = options_.seed;
  recent_.clear();
  recent_next_ = 0;
}

void Sampler::Accept(int32_t id) {
  const auto limit = static_cast<size_t>(options_.repeat_last_n < 0 ? kAllRecent : options_.repeat_last_n);
  if (limit == 0) return;
  if (recent_.size() < limit) {
    recent_.push_back(id);
    return;
  }
  recent_[recent_next_] = id;
  recent_next_ = (recent_next_ + 1) % limit;
}

Sampler::State Sampler::Save() const {
  State out{rng_, recent_};
  std::rotate(out.recent.begin(), out.recent.begin() + static_cast<ptrdiff_t>(recent_next_), out.recent.end());
  return out;
}

void Sampler::Restore(const State& state) {
  Reset();
  rng_ = state.draws;
  for (const int32_t id : state.recent) Accept(id);
}

std::vector<int32_t> Sampler::Penalised() const {
  std::vector<int32_t> out;
  if (options_.repeat_penalty != 1.0f) out = recent_;
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

float Sampler::Penalise(float logit) const {
  // A strong penalty must not turn a finite logit into an infinite one.
  return std::clamp(logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty, -3e38f, 3e38f);
}

size_t Sampler::MostKept(size_t n) const {
  if (options_.temperature <= 0) return 1;
  return options_.top_k > 0 ? std::min(n, static_cast<size_t>(options_.top_k)) : n;
}

Result<std::vector<Sampler::Candidate>> Sampler::Candidates(std::span<const float> logits) const {
  if (logits.empty() || logits.size() > INT32_MAX)
    return InvalidArgument("cannot sample from {} logits", logits.size());
  // Ids are in ascending order, so the penalised ones are found by walking a sorted list in parallel.
  const std::vector<int32_t> recent = Penalised();
  auto penalised = std::lower_bound(recent.begin(), recent.end(), 0);

  const size_t keep = MostKept(logits.size());
  // Collects up to twice the final number, then truncates: memory depends on top-k, not the vocabulary.
  const size_t room = std::min(logits.size(), 2 * keep);
  std::vector<Candidate> all;
  all.reserve(room);
  const auto cut = [&] {
    if (all.size() > keep) {
      std::nth_element(all.begin(), all.begin() + static_cast<ptrdiff_t>(keep) - 1, all.end(), MoreLikely);
      all.resize(keep);
    }
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    float logit = logits[i];
    if (!std::isfinite(logit)) return NotUsable(static_cast<int32_t>(i), logit);
    if (penalised != recent.end() && static_cast<size_t>(*penalised) == i) {
      ++penalised;
      logit = Penalise(logit);
    }
    if (all.size() == room && room < logits.size()) cut();
    all.push_back({static_cast<int32_t>(i), logit, 0.0});
  }
  cut();
  std::sort(all.begin(), all.end(), MoreLikely);
  return Narrow(std::move(all));
}

std::vector<Sampler::Candidate> Sampler::Narrow(std::vector<Candidate> all) const {
  if (options_.temperature <= 0) {
    all.front().probability = 1;
    return all;
  }
  if (options_.top_p < 1) {
    Softmax(&all, 1.0);
    double sum = 0;
    size_t n = 0;
    while (n < all.size() && sum < options_.top_p) sum += all[n++].probability;
    all.resize(n);
  }
  if (options_.min_p > 0) {
    const double lowest = all.front().logit + std::log(static_cast<double>(options_.min_p));
    size_t n = 1;
    while (n < all.size() && all[n].logit >= lowest) ++n;
    all.resize(n);
  }
  Softmax(&all, options_.temperature);
  return all;
}

int32_t Sampler::Draw(std::span<const Candidate> candidates) {
  if (candidates.size() == 1) return candidates[0].id;
  double u = NextUniform(&rng_);
  for (const Candidate& c : candidates) {
    u -= c.probability;
    if (u < 0) return c.id;
  }
  // Rounding can leave a tiny part of the interval uncovered; it belongs to the last candidate.
  return candidates.back().id;
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, Candidates(logits));
  return Draw(candidates);
}

int32_t Sampler::n_deciding() const {
  // A factor below 1 may raise any token; any other only lowers, each at most one of the largest.
  if (options_.repeat_penalty < 1) return 0;
  if (options_.temperature > 0 && options_.top_k <= 0) return 0;
  const size_t n = MostKept(INT32_MAX) + Penalised().size();
  return static_cast<int32_t>(std::min<size_t>(n, INT32_MAX));
}

Result<int32_t> Sampler::SampleMostLikely(std::span<const int32_t> ids, std::span<const float> logits) {
  if (logits.empty() || ids.size() != logits.size()) {
    return InvalidArgument("cannot sample from {} logits of {} tokens", logits.size(), ids.size());
  }
  if (!std::isfinite(logits.front())) return NotUsable(ids.front(), logits.front());
  const std::vector<int32_t> recent = Penalised();
  std::vector<Candidate> all;
  all.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool penalised = std::binary_search(recent.begin(), recent.end(), ids[i]);
    all.push_back({ids[i], penalised ? Penalise(logits[i]) : logits[i], 0.0});
  }
  std::sort(all.begin(), all.end(), MoreLikely);
  all.resize(MostKept(all.size()));
  return Draw(Narrow(std::move(all)));
}

}  // namespace weir
