// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <new>

namespace weir {
namespace {

constexpr double kPi = 3.14159265358979323846;
// Bounds on a file's values, far above any model: they keep every product below within 64 bits.
constexpr int kMaxRot = 1 << 16;
constexpr int64_t kMaxPositions = int64_t{1} << 40;

int64_t RoundUpToTile(int64_t n_positions) { return (n_positions + kRopeTile - 1) / kRopeTile * kRopeTile; }

bool FinitePositive(double x) { return std::isfinite(x) && x > 0; }

// The pair that makes `turns` full turns within the trained context (Peng et al. 2023, YaRN, section 3.2).
double PairOfTurns(const RopeConfig& config, double turns) {
  return config.n_rot * std::log(config.original_context / (turns * 2 * kPi)) / (2 * std::log(config.freq_base));
}

// Pairs below `low` turn often enough to be extrapolated, pairs above `high` are interpolated.
struct CorrectionRange {
  double low, high;
};

CorrectionRange YarnRange(const RopeConfig& config) {
  double low = PairOfTurns(config, config.yarn_beta_fast), high = PairOfTurns(config, config.yarn_beta_slow);
  if (config.yarn_whole_pairs) low = std::floor(low), high = std::ceil(high);
  return {std::max(low, 0.0), std::min(high, config.n_rot - 1.0)};
}

Status CheckFactors(const RopeConfig& config, const std::vector<float>& factors, const char* which) {
  if (factors.empty()) return Status();
  const size_t n_pairs = static_cast<size_t>(config.n_rot / 2);
  if (factors.size() != n_pairs) {
    return InvalidArgument("rotary embedding: {} {}frequency factors for {} pairs", factors.size(), which, n_pairs);
  }
  for (float f : factors) {
    if (!FinitePositive(f))
      return InvalidArgument("rotary embedding: {}frequency factor {:g} is not positive", which, f);
  }
  return Status();
}

Status Check(const RopeConfig& config, int64_t n_positions) {
  if (config.n_rot < 0 || config.n_rot % 2 != 0 || config.n_rot > kMaxRot) {
    return InvalidArgument("rotary embedding: {} rotated elements; need an even number from 0 to {}", config.n_rot,
                           kMaxRot);
  }
  if (n_positions < 0 || n_positions > kMaxPositions) {
    return InvalidArgument("rotary embedding: cannot make a table of {} positions", n_positions);
  }
  if (config.n_rot == 0) return Status();
  if (!FinitePositive(config.freq_base)) {
    return InvalidArgument("rotary embedding: frequency base {:g} is not positive", config.freq_base);
  }
  if (!FinitePositive(config.factor)) {
    return InvalidArgument("rotary embedding: scaling factor {:g} is not positive", config.factor);
  }
  if (!FinitePositive(config.attn_factor)) {
    return InvalidArgument("rotary embedding: attention factor {:g} is not positive", config.attn_factor);
  }
  if (config.scaling == RopeConfig::Scaling::kYarn) {
    if (!FinitePositive(config.original_context) || !FinitePositive(config.yarn_beta_fast) ||
        !FinitePositive(config.yarn_beta_slow) || !std::isfinite(config.yarn_ext_factor)) {
      return InvalidArgument(
          "rotary embedding: YaRN needs a trained context and positive betas (context {:g}, {:g}, {:g})",
          config.original_context, config.yarn_beta_fast, config.yarn_beta_slow);
    }
    if (config.freq_base <= 1) {
      return InvalidArgument("rotary embedding: YaRN needs a frequency base above 1, not {:g}", config.freq_base);
    }
  }
  WEIR_RETURN_IF_ERROR(CheckFactors(config, config.freq_factors, ""));
  return CheckFactors(config, config.freq_factors_long, "long-context ");
}

}  // namespace

bool RopeConfig::IsLong(int64_t n_context) const {
  return !freq_factors_long.empty() && original_context > 0 && static_cast<double>(n_context) > original_context;
}

int64_t RopeTable::Bytes(const RopeConfig& config, int64_t n_positions) {
  if (!Check(config, n_positions).ok()) return 0;
  const int64_t n_pairs = config.n_rot / 2;
  const int64_t n_rows = 2 * kRopeTile + RoundUpToTile(n_positions) / kRopeTile;
  return n_pairs * static_cast<int64_t>(sizeof(double)) + 2 * n_rows * n_pairs * static_cast<int64_t>(sizeof(float));
}

Result<RopeTable> RopeTable::Make(const RopeConfig& config, int64_t n_positions, int64_t n_context) {
  WEIR_RETURN_IF_ERROR(Check(config, n_positions));
  using Scaling = RopeConfig::Scaling;
  const int n_pairs = config.n_rot / 2;
  const int64_t n_tiles = RoundUpToTile(n_positions) / kRopeTile;
  RopeTable table;
  table.n_rot = config.n_rot;
  table.n_positions = n_tiles * kRopeTile;
  try {
    table.inv_freq.resize(n_pairs);
    table.off_cos.resize(static_cast<size_t>(kRopeTile) * n_pairs);
    for (std::vector<float>* same : {&table.off_sin, &table.turned_cos, &table.turned_sin}) {
      same->resize(table.off_cos.size());
    }
    table.base_cos.resize(static_cast<size_t>(n_tiles) * n_pairs);
    table.base_sin.resize(table.base_cos.size());
  } catch (const std::bad_alloc&) {
    return OverBudget("rotary embedding: no memory for a table of {} positions", n_positions);
  }
  if (n_pairs == 0) return table;

  const std::vector<float>& factors = config.IsLong(n_context) ? config.freq_factors_long : config.freq_factors;
  const bool yarn = config.scaling == Scaling::kYarn;
  const CorrectionRange range = yarn ? YarnRange(config) : CorrectionRange{0, 0};
  for (int i = 0; i < n_pairs; ++i) {
    double freq = std::pow(config.freq_base, -2.0 * i / config.n_rot);
    if (!factors.empty()) freq /= factors[i];
    if (config.scaling == Scaling::kLinear) freq /= config.factor;
    if (yarn) {
      const double ramp = std::clamp((i - range.low) / std::max(0.001, range.high - range.low), 0.0, 1.0);
      const double extrapolated = (1 - ramp) * config.yarn_ext_factor;
      freq = freq / config.factor * (1 - extrapolated) + freq * extrapolated;
    }
    table.inv_freq[i] = freq;
  }
  double magnitude = config.attn_factor;
  // Without any extrapolation YaRN is plain interpolation, which has no temperature; factors below 1 do not either.
  if (yarn && config.yarn_ext_factor != 0 && config.factor > 1) magnitude *= 0.1 * std::log(config.factor) + 1;
  table.magnitude = static_cast<float>(magnitude);

  for (int64_t row = 0; row < kRopeTile; ++row) {
    RopeAngles(table, &row, 1, &table.off_cos[row * n_pairs], &table.off_sin[row * n_pairs]);
    for (int i = 0; i < n_pairs; ++i) {
      table.turned_cos[i * kRopeTile + row] = table.off_cos[row * n_pairs + i];
      table.turned_sin[i * kRopeTile + row] = table.off_sin[row * n_pairs + i];
    }
  }
  for (int64_t tile = 0; tile < n_tiles; ++tile) {
    const int64_t pos = tile * kRopeTile;
    RopeAngles(table, &pos, 1, &table.base_cos[tile * n_pairs], &table.base_sin[tile * n_pairs]);
  }
  return table;
}

std::vector<uint8_t> RopeTable::Pack() const {
  std::vector<uint8_t> out;
  const auto add = [&out](const auto& values) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(values.data());
    out.insert(out.end(), bytes, bytes + values.size() * sizeof(values[0]));
  };
  add(inv_freq);
  for (const std::vector<float>* table : {&off_cos, &off_sin, &base_cos, &base_sin, &turned_cos, &turned_sin})
    add(*table);
  return out;
}

void RopeAngles(const RopeTable& table, const int64_t* pos, int64_t n, float* cos, float* sin) {
  const int64_t n_pairs = table.n_rot / 2;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t pair = 0; pair < n_pairs; ++pair) {
      const double angle = static_cast<double>(pos[i]) * table.inv_freq[pair];
      cos[i * n_pairs + pair] = static_cast<float>(std::cos(angle));
      sin[i * n_pairs + pair] = static_cast<float>(std::sin(angle));
    }
  }
}

namespace ref {

void RotateRows(const RopeTable& table, const float* cos, const float* sin, int64_t n, int64_t head_dim, float* x) {
  const int64_t n_pairs = table.n_rot / 2;
  for (int64_t i = 0; i < n; ++i) {
    float* row = x + i * head_dim;
    for (int64_t pair = 0; pair < n_pairs; ++pair) {
      const float c = cos[i * n_pairs + pair] * table.magnitude;
      const float s = sin[i * n_pairs + pair] * table.magnitude;
      const float x0 = row[pair], x1 = row[pair + n_pairs];
      row[pair] = x0 * c - x1 * s;
      row[pair + n_pairs] = x1 * c + x0 * s;
    }
  }
}

}  // namespace ref
}  // namespace weir
