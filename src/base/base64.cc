// SPDX-License-Identifier: Apache-2.0
#include "base/base64.h"

#include <algorithm>
#include <cstdint>

namespace weir {
namespace {

// The six-bit value of a character, or -1.
int Bits(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::string EncodeBase64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out.push_back(k <= n ? kDigits[group >> (18 - 6 * k) & 63] : '=');
  }
  return out;
}

Result<std::string> DecodeBase64(std::string_view text) {
  const Status bad = InvalidArgument("is not base64");
  if (text.ends_with('=')) {
    if (text.size() % 4 != 0) return bad;
    text.remove_suffix(text.ends_with("==") ? 2 : 1);
  }
  const size_t rest = text.size() % 4;
  if (rest == 1) return bad;
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t group = 0;
  size_t n = 0;
  for (const char c : text) {
    const int bits = Bits(c);
    if (bits < 0) return bad;
    group = group << 6 | static_cast<uint32_t>(bits);
    if (++n % 4 != 0) continue;
    out.push_back(static_cast<char>(group >> 16));
    out.push_back(static_cast<char>(group >> 8));
    out.push_back(static_cast<char>(group));
    group = 0;
  }
  // Two characters carry one byte and four bits, three carry two bytes and two bits; those bits are zero.
  if (rest == 2) {
    if ((group & 0xF) != 0) return bad;
    out.push_back(static_cast<char>(group >> 4));
  } else if (rest == 3) {
    if ((group & 0x3) != 0) return bad;
    out.push_back(static_cast<char>(group >> 10));
    out.push_back(static_cast<char>(group >> 2));
  }
  return out;
}

}  // namespace weir
