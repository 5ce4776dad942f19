// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace weir {
namespace {

static_assert(std::endian::native == std::endian::little);

using Tables = std::array<std::array<uint32_t, 256>, 8>;
constexpr Tables kTables = [] {
  Tables out = {};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t sum = i;
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0x82F63B78u : 0u);
    out[0][i] = sum;
  }
  for (size_t t = 1; t < 8; ++t) {
    for (size_t i = 0; i < 256; ++i) out[t][i] = out[t - 1][i] >> 8 ^ out[0][out[t - 1][i] & 0xFF];
  }
  return out;
}();

uint64_t Word(const uint8_t* from) {
  uint64_t out;
  std::memcpy(&out, from, 8);
  return out;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ByInstruction(const uint8_t* at, size_t n, uint32_t sum) {
  uint64_t wide = sum;
  for (; n >= 8; n -= 8, at += 8) wide = __builtin_ia32_crc32di(wide, Word(at));
  sum = static_cast<uint32_t>(wide);
  for (; n > 0; --n, ++at) sum = __builtin_ia32_crc32qi(sum, *at);
  return sum;
}
#endif

}  // namespace

uint32_t Crc32cByTables(std::span<const uint8_t> bytes, uint32_t before) {
  uint32_t sum = ~before;
  const uint8_t* at = bytes.data();
  size_t n = bytes.size();
  for (; n >= 8; n -= 8, at += 8) {
    const uint64_t word = Word(at) ^ sum;
    sum = 0;
    for (size_t i = 0; i < 8; ++i) sum ^= kTables[7 - i][word >> 8 * i & 0xFF];
  }
  for (; n > 0; --n, ++at) sum = sum >> 8 ^ kTables[0][(sum ^ *at) & 0xFF];
  return ~sum;
}

uint32_t Crc32c(std::span<const uint8_t> bytes, uint32_t before) {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  if (has) return ~ByInstruction(bytes.data(), bytes.size(), ~before);
#endif
  return Crc32cByTables(bytes, before);
}

}  // namespace weir
