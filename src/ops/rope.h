// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding. Every scaling kind of the model files (none, linear, NTK-aware base, YaRN, llama3
// frequency factors, longrope) reduces to one inverse frequency per pair and one magnitude factor, computed once here.
//
// Pairs are half-split: element i of a head is rotated with element i + n_rot/2; elements from n_rot on pass through.
// Files that store interleaved pairs (GGUF architecture `llama`) have their q and k rows reordered at load instead.
//
// Angles of stored keys use two small tables, R(s) = R(s - s % kRopeTile) * R(s % kRopeTile), so that a kernel can
// rotate un-rotated keys on the fly with a table that fits in L1. Renumbering a pot after eviction then costs nothing
// and never drifts (docs/decisions: keys stay un-rotated).
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace weir {

inline constexpr int kRopeTile = 32;

// An architecture's description of its rotary embedding.
struct RopeConfig {
  int n_rot = 0;  // rotated elements per head, even; 0 = no rotary embedding
  double freq_base = 10000.0;
  enum class Scaling { kNone, kLinear, kYarn, kLongRope } scaling = Scaling::kNone;
  double factor = 1.0;           // linear: positions / factor; YaRN: interpolation factor
  double original_context = 0;   // YaRN, longrope: trained context
  double yarn_ext_factor = 1.0;  // YaRN: mix of extrapolation
  double yarn_beta_fast = 32.0, yarn_beta_slow = 1.0;
  bool yarn_whole_pairs = true;          // the correction range is widened to whole pairs
  double attn_factor = 1.0;              // magnitude multiplier from the file (longrope, YaRN)
  std::vector<float> freq_factors;       // [n_rot/2] or empty: inverse frequencies are divided by it (llama3; longrope
                                         // within original_context)
  std::vector<float> freq_factors_long;  // [n_rot/2] or empty: replaces freq_factors for a longer context

  // Whether a context of this many tokens uses freq_factors_long.
  bool IsLong(int64_t n_context) const;
};

// inv_freq[i] and the magnitude that multiplies cos and sin.
struct RopeTable {
  int n_rot = 0;
  std::vector<double> inv_freq;  // [n_rot/2]
  float magnitude = 1.0f;
  int64_t n_positions = 0;                    // positions the two tables cover, a multiple of kRopeTile
  std::vector<float> off_cos, off_sin;        // [kRopeTile, n_rot/2], of positions 0 .. kRopeTile-1; magnitude excluded
  std::vector<float> turned_cos, turned_sin;  // [n_rot/2, kRopeTile]: off_cos and off_sin by pair
  std::vector<float> base_cos, base_sin;  // [n_positions/kRopeTile, n_rot/2], of positions 0, kRopeTile, ...; excluded

  // Pack()'s bytes in a device's memory; nullptr: operations read the vectors. Not owned.
  const uint8_t* device = nullptr;

  // All tables in one block of Bytes() bytes: inv_freq, then as floats off_cos, off_sin, base_cos, base_sin and the
  // turned ones.
  std::vector<uint8_t> Pack() const;

  // YaRN mixes interpolated and extrapolated frequencies over its correction range and multiplies the magnitude by 0.1
  // ln(factor) + 1 (Peng et al. 2023). longrope's magnitude is attn_factor alone: files store it ready to use.
  // kInvalidArgument for odd or negative n_rot, non-positive base or factor, wrong number of frequency factors, YaRN
  // without a trained context; kOverBudget when the system has no memory for the table.
  // `n_context`: the intended context length, which selects longrope's factors; positions may go beyond it where one
  // head borrows another's slots.
  static Result<RopeTable> Make(const RopeConfig& config, int64_t n_positions, int64_t n_context);
  static Result<RopeTable> Make(const RopeConfig& config, int64_t n_positions) {
    return Make(config, n_positions, n_positions);
  }
  // Bytes Make() would hold; 0 for a configuration that it rejects.
  static int64_t Bytes(const RopeConfig& config, int64_t n_positions);
};

// cos and sin (magnitude excluded) of arbitrary positions of any size: angles are computed in double.
//   cos, sin: [n, n_rot/2]
void RopeAngles(const RopeTable& table, const int64_t* pos, int64_t n, float* cos, float* sin);

namespace ref {
// Rotates n vectors of head_dim floats in place, vector i by (cos, sin)[i] times table.magnitude.
void RotateRows(const RopeTable& table, const float* cos, const float* sin, int64_t n, int64_t head_dim, float* x);
}  // namespace ref
}  // namespace weir
