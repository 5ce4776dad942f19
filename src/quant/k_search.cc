// SPDX-License-Identifier: Apache-2.0
#include "quant/k_search.h"

#include <algorithm>
#include <limits>

#include "quant/block.h"

namespace weir {
namespace {

struct Fit {
  float scale = 0.0f;
  float min = 0.0f;  // subtracted: value = code * scale - min, min >= 0
};

void ElementWeights(const float* in, int n, float* weights) {
  float squares = 0.0f;
  for (int i = 0; i < n; ++i) squares += in[i] * in[i];
  const float rms = std::sqrt(squares / static_cast<float>(n));
  for (int i = 0; i < n; ++i) weights[i] = rms + std::fabs(in[i]);
}

float AffineError(const float* in, const float* weights, int n, int max_code, Fit fit) {
  const float inverse = InverseOrZero(fit.scale);
  float error = 0.0f;
  for (int i = 0; i < n; ++i) {
    const float code = static_cast<float>(RoundTo((in[i] + fit.min) * inverse, 0, max_code));
    const float difference = code * fit.scale - fit.min - in[i];
    error += weights[i] * difference * difference;
  }
  return error;
}

// Least squares over scale and min with the codes that result from `inverse` and `min`. False when all codes are equal.
bool RefitAffine(const float* in, const float* weights, int n, int max_code, float inverse, float min, Fit* fit) {
  double w = 0, wq = 0, wqq = 0, wx = 0, wqx = 0;
  for (int i = 0; i < n; ++i) {
    const double q = RoundTo((in[i] + min) * inverse, 0, max_code);
    w += weights[i];
    wq += weights[i] * q;
    wqq += weights[i] * q * q;
    wx += static_cast<double>(weights[i]) * in[i];
    wqx += weights[i] * q * in[i];
  }
  const double determinant = w * wqq - wq * wq;
  if (!(determinant > 0.0)) return false;
  fit->scale = static_cast<float>((w * wqx - wq * wx) / determinant);
  fit->min = static_cast<float>((wq * wqx - wqq * wx) / determinant);
  // A minimum above zero cannot be stored: keep it at zero and fit the scale alone.
  if (fit->min < 0.0f) {
    fit->min = 0.0f;
    fit->scale = static_cast<float>(wqx / wqq);
  }
  return fit->scale > 0.0f;
}

Fit SearchAffine(const float* in, const float* weights, int n, int max_code) {
  const auto [low_at, high_at] = std::minmax_element(in, in + n);
  const float low = std::min(*low_at, 0.0f);
  const float range = *high_at - low;
  Fit best;
  best.min = -low;
  if (!(range > 0.0f)) return best;  // all values equal and not positive: code 0 minus min is exact
  best.scale = range / static_cast<float>(max_code);
  float best_error = AffineError(in, weights, n, max_code, best);
  // Up to one code in steps of a tenth. On Gaussian weights, twice the range lowers the squared error by less than 1%
  // and takes twice the time; half the step has no effect.
  for (int step = -10; step <= 10; ++step) {
    const float inverse = (static_cast<float>(max_code) + 0.1f * static_cast<float>(step)) / range;
    Fit fit;
    if (!RefitAffine(in, weights, n, max_code, inverse, -low, &fit)) continue;
    const float error = AffineError(in, weights, n, max_code, fit);
    if (error < best_error) {
      best_error = error;
      best = fit;
    }
  }
  return best;
}

// The six-bit neighbours of a fitted pair: rounding scale and minimum independently is rarely the best choice.
GroupScale RoundPair(const float* in, const float* weights, int max_code, Fit fit, float d, float dmin) {
  const int scale = RoundTo(fit.scale * InverseOrZero(d), 0, 63);
  const int min = RoundTo(fit.min * InverseOrZero(dmin), 0, 63);
  GroupScale best = {scale, min};
  float best_error = std::numeric_limits<float>::infinity();
  for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, 63); ++s) {
    for (int m = std::max(min - 1, 0); m <= std::min(min + 1, 63); ++m) {
      const Fit rounded = {d * static_cast<float>(s), dmin * static_cast<float>(m)};
      const float error = AffineError(in, weights, kMinGroupElements, max_code, rounded);
      if (error < best_error) {
        best_error = error;
        best = {s, m};
      }
    }
  }
  return best;
}

}  // namespace

void PackScale(GroupScale value, int group, uint8_t* packed) {
  if (group < 4) {
    packed[group] = static_cast<uint8_t>((packed[group] & 0xc0) | value.scale);
    packed[group + 4] = static_cast<uint8_t>((packed[group + 4] & 0xc0) | value.min);
    return;
  }
  packed[group + 4] = static_cast<uint8_t>((value.scale & 0x0f) | (value.min & 0x0f) << 4);
  packed[group - 4] = static_cast<uint8_t>((packed[group - 4] & 0x3f) | (value.scale >> 4) << 6);
  packed[group] = static_cast<uint8_t>((packed[group] & 0x3f) | (value.min >> 4) << 6);
}

MinBlock SearchMinBlock(const float* in, int max_code) {
  float weights[kSuperElements];
  Fit fits[kMinGroups];
  float peak_scale = 0.0f;
  float peak_min = 0.0f;
  for (int g = 0; g < kMinGroups; ++g) {
    const int first = g * kMinGroupElements;
    ElementWeights(in + first, kMinGroupElements, weights + first);
    fits[g] = SearchAffine(in + first, weights + first, kMinGroupElements, max_code);
    peak_scale = std::max(peak_scale, fits[g].scale);
    peak_min = std::max(peak_min, fits[g].min);
  }
  MinBlock block;
  block.d = F32ToF16(peak_scale / 63.0f);
  block.dmin = F32ToF16(peak_min / 63.0f);
  if (!IsFiniteF16(block.d) || !IsFiniteF16(block.dmin))
    return block;  // values too large: the caller's check detects
                   // it
  const float d = F16ToF32(block.d);
  const float dmin = F16ToF32(block.dmin);
  for (int g = 0; g < kMinGroups; ++g) {
    const int first = g * kMinGroupElements;
    const GroupScale pair = RoundPair(in + first, weights + first, max_code, fits[g], d, dmin);
    PackScale(pair, g, block.scales);
    const float inverse = InverseOrZero(d * static_cast<float>(pair.scale));
    const float min = dmin * static_cast<float>(pair.min);
    for (int i = first; i < first + kMinGroupElements; ++i) {
      block.codes[i] = static_cast<uint8_t>(RoundTo((in[i] + min) * inverse, 0, max_code));
    }
  }
  return block;
}

float SearchSymmetricScale(const float* in, int n, int max_code) {
  float weights[kSuperElements];
  ElementWeights(in, n, weights);
  float peak = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(in[i]) > std::fabs(peak)) peak = in[i];
  }
  if (peak == 0.0f) return 0.0f;
  float best_scale = peak / -static_cast<float>(max_code);
  double best_gain = -1.0;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = -(static_cast<float>(max_code) + 0.1f * static_cast<float>(step)) / peak;
    double wqx = 0, wqq = 0;
    for (int i = 0; i < n; ++i) {
      const double q = RoundTo(in[i] * inverse, -max_code, max_code - 1);
      wqx += weights[i] * q * in[i];
      wqq += weights[i] * q * q;
    }
    // With the best scale for these codes, the squared error falls by wqx^2 / wqq.
    if (wqq > 0.0 && wqx * wqx > best_gain * wqq) {
      best_gain = wqx * wqx / wqq;
      best_scale = static_cast<float>(wqx / wqq);
    }
  }
  return best_scale;
}

}  // namespace weir
