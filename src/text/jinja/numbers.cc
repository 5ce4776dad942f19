// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/numbers.h"

#include <fmt/core.h>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/ascii.h"
#include "text/jinja/letters.h"

namespace weir::jinja {
namespace {

// Without the single underscores that Python allows between digits; nullopt where they are elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !std::isalnum(static_cast<unsigned char>(text[i - 1])) ||
               !std::isalnum(static_cast<unsigned char>(text[i + 1]))) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string out = text[0] == '-' ? "-" : "";
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (n > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  const size_t n_whole = static_cast<size_t>(exponent) + 1;
  return out + digits.substr(0, n_whole) + "." + digits.substr(n_whole);
}

std::optional<int64_t> ParseInt(std::string_view text, int base) {
  text = StripSpace(text, true, true);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto prefix = [&](const char* lower, int of) {
    if (base != of || text.size() < 2 || text[0] != '0' || (text[1] | 32) != lower[1]) return;
    text.remove_prefix(2);
    if (!text.empty() && text[0] == '_') text.remove_prefix(1);
  };
  prefix("0x", 16);
  prefix("0o", 8);
  prefix("0b", 2);
  const auto plain = WithoutUnderscores(text);
  if (!plain || plain->empty() || !std::isalnum(static_cast<unsigned char>((*plain)[0]))) return std::nullopt;
  int64_t out = 0;
  const std::string signed_text = (negative ? "-" : "") + *plain;
  const auto [end, error] = std::from_chars(signed_text.data(), signed_text.data() + signed_text.size(), out, base);
  if (error != std::errc() || end != signed_text.data() + signed_text.size()) return std::nullopt;
  return out;
}

std::optional<double> ParseFloat(std::string_view text) {
  const auto plain = WithoutUnderscores(StripSpace(text, true, true));
  if (!plain || plain->empty()) return std::nullopt;
  const std::string lower = AsciiLower(*plain);
  size_t begin = lower[0] == '+' || lower[0] == '-' ? 1 : 0;
  const std::string_view word = std::string_view(lower).substr(begin);
  const double sign = lower[0] == '-' ? -1 : 1;
  if (word == "inf" || word == "infinity") return sign * INFINITY;
  if (word == "nan") return std::nan("");
  if (word.empty() || !(std::isdigit(static_cast<unsigned char>(word[0])) || word[0] == '.')) return std::nullopt;
  double out = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out);
  if (end != word.data() + word.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) out = std::strtod(lower.c_str() + begin, nullptr);
  return sign * out;
}

double RoundTo(double value, int digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    if (digits < -300) return 0.0 * value;
    const double unit = std::pow(10.0, -digits);
    return std::nearbyint(value / unit) * unit;
  }
  return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
}

}  // namespace weir::jinja
