// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/q2_k.h"

#include <algorithm>

namespace weir {
namespace {

void Decode(const uint8_t* bytes, float* out) { DecodeQ2_K(LoadBlock<BlockQ2_K>(bytes), out); }

struct Line {
  float scale = 0, minimum = 0;  // value = scale * code - minimum
};

// A line with the least squared error for one group: over ranges of several widths, the codes of each, and the line
// that fits those codes best.
Line FitGroup(const float* in) {
  constexpr int n = BlockQ2_K::kGroupElements;
  const auto [least_value, most_value] = std::minmax_element(in, in + n);
  // A line begins at zero or below. The difference may be beyond a float.
  const double low = std::min(*least_value, 0.0f), high = *most_value;
  Line best;
  double least = -1;
  for (int narrow = 0; narrow <= 8; ++narrow) {
    const double span = (high - low) * (1 - 0.05 * narrow);
    const double bottom = low + (high - low - span) / 2, inverse = span > 0 ? 3 / span : 0;
    double sum_c = 0, sum_cc = 0, sum_x = 0, sum_cx = 0;
    for (int i = 0; i < n; ++i) {
      const double c = RoundTo(static_cast<float>((in[i] - bottom) * inverse), 0, 3), x = in[i];
      sum_c += c;
      sum_cc += c * c;
      sum_x += x;
      sum_cx += c * x;
    }
    const double spread = n * sum_cc - sum_c * sum_c;
    double scale = spread > 0 ? (n * sum_cx - sum_c * sum_x) / spread : 0;
    double minimum = -(sum_x - scale * sum_c) / n;
    if (minimum < 0) {  // a minimum is never above zero
      minimum = 0;
      scale = sum_cc > 0 ? sum_cx / sum_cc : 0;
    }
    scale = std::max(scale, 0.0);
    const auto line = Line{static_cast<float>(scale), static_cast<float>(minimum)};
    double error = 0;
    for (int i = 0; i < n; ++i) {
      const int c = RoundTo((in[i] + line.minimum) * InverseOrZero(line.scale), 0, 3);
      const double off = in[i] - (scale * c - minimum);
      error += off * off;
    }
    if (least < 0 || error < least) {
      least = error;
      best = line;
    }
  }
  return best;
}

void Encode(const float* in, uint8_t* bytes) {
  BlockQ2_K block = {};
  if (!FiniteValues(in, BlockQ2_K::kElements)) {
    block.d = kHalfNan;
    return StoreBlock(block, bytes);
  }
  Line lines[BlockQ2_K::kGroups];
  float scale = 0, minimum = 0;
  for (int g = 0; g < BlockQ2_K::kGroups; ++g) {
    lines[g] = FitGroup(in + g * BlockQ2_K::kGroupElements);
    scale = std::max(scale, lines[g].scale);
    minimum = std::max(minimum, lines[g].minimum);
  }
  block.d = F32ToF16(scale / 15.0f);
  block.dmin = F32ToF16(minimum / 15.0f);
  if (!IsFiniteF16(block.d) || !IsFiniteF16(block.dmin)) return StoreBlock(block, bytes);
  const float d = F16ToF32(block.d), dmin = F16ToF32(block.dmin);
  for (int g = 0; g < BlockQ2_K::kGroups; ++g) {
    const int of_scale = RoundTo(lines[g].scale * InverseOrZero(d), 0, 15);
    const int of_minimum = RoundTo(lines[g].minimum * InverseOrZero(dmin), 0, 15);
    block.scales[g] = static_cast<uint8_t>(of_scale | of_minimum << 4);
  }
  for (int e = 0; e < BlockQ2_K::kElements; ++e) {
    const uint8_t pair = block.scales[e / BlockQ2_K::kGroupElements];
    const float inverse = InverseOrZero(d * static_cast<float>(pair & 0x0f));
    const int code = RoundTo((in[e] + dmin * static_cast<float>(pair >> 4)) * inverse, 0, 3);
    const int half = e / 128, quarter = e / BlockQ2_K::kQuarter % 4, i = e % BlockQ2_K::kQuarter;
    block.qs[half * 32 + i] |= static_cast<uint8_t>(code << (quarter * 2));
  }
  StoreBlock(block, bytes);
}

}  // namespace

const QuantFormat kQ2_KFormat = {
    .type = DType::kQ2_K,
    .info = {.name = "Q2_K",
             .gguf_number = 10,
             .block_elements = BlockQ2_K::kElements,
             .block_bytes = sizeof(BlockQ2_K)},
    .round_trip_error = 0.279,
    .decode = Decode,
    .encode = Encode,
    .finite = HalfScalesFinite<BlockQ2_K, offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)>,
};

}  // namespace weir
