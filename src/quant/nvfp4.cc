// weir-plugin: format
// SPDX-License-Identifier: Apache-2.0
#include "quant/nvfp4.h"

#include <algorithm>
#include <cmath>

#include "quant/block.h"

namespace weir {
namespace {

constexpr int kGroup = 16;
constexpr uint8_t kNoNumber = 0x7f;

float Scale(uint8_t bits) {
  if (bits == kNoNumber) return 0.0f;
  const int e = (bits >> 3) & 0x0f, m = bits & 7;
  return std::ldexp(static_cast<float>(e == 0 ? m : 8 + m), (e == 0 ? -9 : e - 10) - 1);
}

void Decode(const uint8_t* bytes, float* out) {
  const auto block = LoadBlock<BlockNVFP4>(bytes);
  for (int i = 0; i < BlockNVFP4::kElements; ++i) {
    const uint8_t byte = block.qs[i / kGroup * 8 + i % 8];
    out[i] = Scale(block.scales[i / kGroup]) * static_cast<float>(kFloat4Levels[(byte >> (i / 8 % 2 * 4)) & 0x0f]);
  }
}

int Code(float x) {  // of x / scale
  int best = 0;
  for (int code = 1; code < 16; ++code) {
    if (std::fabs(x - static_cast<float>(kFloat4Levels[code])) < std::fabs(x - static_cast<float>(kFloat4Levels[best])))
      best = code;
  }
  return best;
}

double ErrorOf(const float* in, uint8_t bits) {
  const float scale = Scale(bits);
  double sum = 0;
  for (int i = 0; i < kGroup; ++i) {
    const double off = in[i] - static_cast<double>(scale) * kFloat4Levels[Code(in[i] * InverseOrZero(scale))];
    sum += off * off;
  }
  return sum;
}

void Encode(const float* in, uint8_t* bytes) {
  BlockNVFP4 block = {};
  const float limit = 13.0f * Scale(kNoNumber - 1);  // beyond the largest number by more than rounding
  for (int g = 0; g < BlockNVFP4::kElements / kGroup; ++g, in += kGroup) {
    if (!std::all_of(in, in + kGroup, [limit](float x) { return std::fabs(x) <= limit; })) {
      block.scales[g] = kNoNumber;
      continue;
    }
    uint8_t& best = block.scales[g];
    double least = ErrorOf(in, best);
    for (uint8_t bits = 1; bits < kNoNumber; ++bits) {
      if (const double error = ErrorOf(in, bits); error < least) least = error, best = bits;
    }
    const float inverse = InverseOrZero(Scale(best));
    for (int i = 0; i < kGroup; ++i) {
      block.qs[g * 8 + i % 8] |= static_cast<uint8_t>(Code(in[i] * inverse) << (i / 8 * 4));
    }
  }
  StoreBlock(block, bytes);
}

bool Finite(const uint8_t* blocks, int64_t n_blocks) {
  bool finite = true;
  for (int64_t i = 0; i < n_blocks; ++i, blocks += sizeof(BlockNVFP4)) {
    for (int g = 0; g < 4; ++g) finite &= blocks[g] != kNoNumber;
  }
  return finite;
}

CodeBlock ReadCodes(const uint8_t* row, int64_t b) {
  const auto block = LoadBlock<BlockNVFP4>(row + b / 2 * static_cast<int64_t>(sizeof(BlockNVFP4)));
  const auto group = static_cast<int>(b % 2 * 2);
  CodeBlock out;
  for (int i = 0; i < kCodeBlock; ++i) {
    out.code[i] = (block.qs[(group + i / kGroup) * 8 + i % 8] >> (i / 8 % 2 * 4)) & 0x0f;
  }
  out.d = F32ToF16(Scale(block.scales[group]));  // exactly: three bits of mantissa, exponents from -10 to 7
  out.m = F32ToF16(Scale(block.scales[group + 1]));
  return out;
}

}  // namespace

const QuantFormat kNVFP4Format = {
    .type = DType::kNVFP4,
    .info = {.name = "NVFP4",
             .gguf_number = 40,
             .block_elements = BlockNVFP4::kElements,
             .block_bytes = sizeof(BlockNVFP4)},
    .round_trip_error = 0.094,
    .decode = Decode,
    .encode = Encode,
    .finite = Finite,
    .read_codes = ReadCodes,
};

}  // namespace weir
