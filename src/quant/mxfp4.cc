// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/mxfp4.h"

#include <algorithm>
#include <cmath>

namespace weir {
namespace {

constexpr int kLargestExponent = 252;  // 12 * 2^(252 - 128) is finite, and no larger one's twelvefold is
constexpr uint8_t kNan = 255;          // as the format's authors define it

void Decode(const uint8_t* bytes, float* out) { DecodeMXFP4(LoadBlock<BlockMXFP4>(bytes), out); }

int Code(float x) {  // of x / scale
  int code = 0;
  for (int c = 1; c < 8; ++c) {
    const float between = static_cast<float>(kFloat4Levels[c - 1] + kFloat4Levels[c]) / 2;
    if (std::fabs(x) > between) code = c;
  }
  return code | (code > 0 && x < 0 ? 8 : 0);
}

double ErrorOf(const float* in, int e) {
  const float scale = PowerScale(static_cast<uint8_t>(e));
  double sum = 0;
  for (int i = 0; i < BlockMXFP4::kElements; ++i) {
    const double off = in[i] - static_cast<double>(scale) * kFloat4Levels[Code(in[i] / scale)];
    sum += off * off;
  }
  return sum;
}

void Encode(const float* in, uint8_t* bytes) {
  constexpr int n = BlockMXFP4::kElements;
  BlockMXFP4 block = {};
  if (!FiniteValues(in, n)) {
    block.e = kNan;
    return StoreBlock(block, bytes);
  }
  float peak = 0.0f;
  for (int i = 0; i < n; ++i) peak = std::max(peak, std::fabs(in[i]));
  if (peak > 0.0f) {
    int exponent = 0;
    (void)std::frexp(peak, &exponent);  // peak < 2^exponent; twelve times the scale is near it
    const int e = exponent - 4 + 128;
    // The next power may lose less on the small ones than it gains on the largest.
    int best = std::clamp(e, 0, kLargestExponent);
    for (const int other : {e - 1, e + 1}) {
      const int tried = std::clamp(other, 0, kLargestExponent);
      if (ErrorOf(in, tried) < ErrorOf(in, best)) best = tried;
    }
    block.e = static_cast<uint8_t>(best);
  }
  const float scale = PowerScale(block.e);
  // Beyond the largest number by more than rounding.
  if (peak > 14.0f * scale && block.e == kLargestExponent) {
    block.e = kNan;
    return StoreBlock(block, bytes);
  }
  for (int i = 0; i < n; ++i) {
    block.qs[i % (n / 2)] |= static_cast<uint8_t>(Code(in[i] / scale) << (i / (n / 2) * 4));
  }
  StoreBlock(block, bytes);
}

bool Finite(const uint8_t* blocks, int64_t n_blocks) {
  bool finite = true;
  for (int64_t i = 0; i < n_blocks; ++i, blocks += sizeof(BlockMXFP4)) finite &= blocks[0] <= kLargestExponent;
  return finite;
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockMXFP4>(row + b * static_cast<int64_t>(sizeof(BlockMXFP4)));
  CodeBlock out;
  ReadNibbles(block.qs, &out);
  out.sub[0] = block.e;
  return out;
}

}  // namespace

const QuantFormat kMXFP4Format = {
    .type = DType::kMXFP4,
    .info = {.name = "MXFP4",
             .gguf_number = 39,
             .block_elements = BlockMXFP4::kElements,
             .block_bytes = sizeof(BlockMXFP4)},
    .round_trip_error = 0.116,
    .decode = Decode,
    .encode = Encode,
    .finite = Finite,
    .read_codes = ReadCodes,
};

}  // namespace weir
