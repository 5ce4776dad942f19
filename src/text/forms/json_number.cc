// SPDX-License-Identifier: Apache-2.0
#include "text/forms/json_number.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

namespace weir::forms {
namespace {

constexpr int kExactDigits = 15;  // of a number that differs from all others with as many when read as a double
constexpr int kMaxDigits = 16, kMaxBoundDigits = 40;

bool AllZeros(const std::string& digits, size_t from) {
  return digits.find_first_not_of('0', std::min(from, digits.size())) == std::string::npos;
}

int DigitAt(const std::string& digits, size_t i) { return i < digits.size() ? digits[i] - '0' : 0; }

// Numbers from `low` to `high`, neither of them negative, without a sign.
class Magnitudes {
 public:
  using Bound = NumberLimits::Bound;
  Magnitudes(std::optional<Bound> low, std::optional<Bound> high, bool integer, int64_t multiple, int32_t to,
             NetworkBuilder* network)
      : low_(std::move(low)),
        high_(std::move(high)),
        integer_(integer || multiple > 1),
        multiple_(multiple),
        to_(to),
        network_(*network) {
    for (const auto& bound : {low_, high_}) {
      if (!bound) continue;
      n_fraction_ = std::max(n_fraction_, bound->value.fraction.size());
      // One that comes closer to a bound which is excluded would be read as the bound.
      if (!bound->open) continue;
      const auto n_whole = static_cast<int>(std::min<size_t>(bound->value.whole.size(), kExactDigits - 1));
      max_fraction_ = std::min(max_fraction_, static_cast<size_t>(kExactDigits - n_whole));
    }
  }

  void Emit(int32_t from) {
    const size_t shortest = low_ ? low_->value.whole.size() : 1;
    const size_t longest = high_ ? high_->value.whole.size() : std::max<size_t>(kMaxDigits, shortest);
    for (size_t n = shortest; n <= longest; ++n) {
      const bool at_low = low_ && n == low_->value.whole.size(), at_high = high_ && n == high_->value.whole.size();
      Digits(from, n, n, at_low, at_high, 0);
    }
  }

 private:
  // `n` digits before the point are still to be read of `n_all`; the ones read are equal to those of the bounds where
  // at_low and at_high say so, and leave `rest` when divided.
  void Digits(int32_t from, size_t n, size_t n_all, bool at_low, bool at_high, int64_t rest) {
    const size_t place = n_all - n;
    for (int digit = place == 0 && n_all > 1 ? 1 : 0; digit <= 9; ++digit) {
      const int least = at_low ? DigitAt(low_->value.whole, place) : 0;
      const int most = at_high ? DigitAt(high_->value.whole, place) : 9;
      if (digit < least || digit > most) continue;
      const int32_t next =
          After(n - 1, n_all, at_low && digit == least, at_high && digit == most, (rest * 10 + digit) % multiple_);
      network_.Byte(from, static_cast<uint8_t>('0' + digit), static_cast<uint8_t>('0' + digit), next);
    }
  }

  int32_t After(size_t n, size_t n_all, bool at_low, bool at_high, int64_t rest) {
    // How many digits there were matters only next to a bound, which has its own number of them.
    const auto [it, is_new] = whole_.try_emplace({n, at_low, at_high, rest}, 0);
    if (!is_new) return it->second;
    const int32_t node = it->second = network_.AddNode();
    if (network_.full()) return node;
    if (n > 0) {
      Digits(node, n, n_all, at_low, at_high, rest);
    } else {
      if (rest == 0 && MayEnd(at_low, at_high, 0)) network_.Empty(node, to_);
      if (!integer_) {
        const int32_t point = network_.AddNode();
        network_.Byte(node, '.', '.', point);
        Fraction(point, 0, at_low, at_high);
      }
    }
    return node;
  }

  bool MayEnd(bool at_low, bool at_high, size_t n_read) const {
    if (at_low && (!AllZeros(low_->value.fraction, n_read) || low_->open)) return false;
    return !(at_high && AllZeros(high_->value.fraction, n_read) && high_->open);
  }

  void Fraction(int32_t from, size_t n_read, bool at_low, bool at_high) {
    if (n_read == std::max(max_fraction_, n_fraction_)) return;
    for (int digit = 0; digit <= 9; ++digit) {
      const int least = at_low ? DigitAt(low_->value.fraction, n_read) : 0;
      const int most = at_high ? DigitAt(high_->value.fraction, n_read) : 9;
      if (digit < least || digit > most) continue;
      const bool low = at_low && digit == least, high = at_high && digit == most;
      const auto [it, is_new] = fraction_.try_emplace({n_read + 1, low, high}, 0);
      if (is_new) {
        const int32_t node = it->second = network_.AddNode();
        if (MayEnd(low, high, n_read + 1)) network_.Empty(node, to_);
        Fraction(node, n_read + 1, low, high);
      }
      const int32_t next = fraction_[{n_read + 1, low, high}];
      network_.Byte(from, static_cast<uint8_t>('0' + digit), static_cast<uint8_t>('0' + digit), next);
    }
  }

  const std::optional<Bound> low_, high_;
  const bool integer_;
  const int64_t multiple_;
  const int32_t to_;
  size_t n_fraction_ = 0, max_fraction_ = kMaxDigits;
  NetworkBuilder& network_;
  struct WholeKey {
    size_t n;
    bool at_low, at_high;
    int64_t rest;
    auto operator<=>(const WholeKey&) const = default;
  };
  struct FractionKey {
    size_t n;
    bool at_low, at_high;
    auto operator<=>(const FractionKey&) const = default;
  };
  std::map<WholeKey, int32_t> whole_;
  std::map<FractionKey, int32_t> fraction_;
};

void Plain(bool integer, int32_t from, int32_t to, NetworkBuilder* network) {
  const int32_t digit = network->AddRule("");
  network->Byte(network->StartOf(digit), '0', '9', network->EndOf(digit));
  const int32_t first = network->AddNode(), whole = network->AddNode(), more = network->AddNode();
  network->Empty(from, first);
  network->Byte(from, '-', '-', first);
  network->Byte(first, '0', '0', whole);
  network->Byte(first, '1', '9', more);
  network->Repeat(more, digit, 0, kMaxDigits - 1, whole);
  network->Empty(whole, to);
  if (integer) return;
  const int32_t point = network->AddNode(), fraction = network->AddNode();
  network->Byte(whole, '.', '.', point);
  network->Repeat(point, digit, 1, kMaxDigits, fraction);
  network->Empty(fraction, to);
  const int32_t sign = network->AddNode(), exponent = network->AddNode();
  for (const int32_t before : {whole, fraction}) {
    network->Byte(before, 'e', 'e', sign);
    network->Byte(before, 'E', 'E', sign);
  }
  network->Byte(sign, '+', '+', exponent);
  network->Byte(sign, '-', '-', exponent);
  network->Empty(sign, exponent);
  network->Repeat(exponent, digit, 1, 2, to);
}

}  // namespace

int Compare(const Decimal& a, const Decimal& b) {
  const auto is_zero = [](const Decimal& d) { return d.whole == "0" && d.fraction.empty(); };
  const bool minus_a = a.negative && !is_zero(a), minus_b = b.negative && !is_zero(b);
  if (minus_a != minus_b) return minus_a ? -1 : 1;
  int order = 0;
  if (a.whole.size() != b.whole.size()) {
    order = a.whole.size() < b.whole.size() ? -1 : 1;
  } else {
    order = a.whole.compare(b.whole);
    if (order == 0) order = a.fraction.compare(b.fraction);  // no zeros at the ends
  }
  return minus_a ? -order : order;
}

std::optional<Decimal> DecimalOf(const Json& number) {
  const std::string text = number.dump();
  Decimal out;
  std::string digits;
  int64_t exponent = 0, n_whole = -1;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '-') {
      out.negative = true;
    } else if (c == '.') {
      n_whole = std::ssize(digits);
    } else if (c == 'e' || c == 'E') {
      const size_t begin = i + (i + 1 < text.size() && text[i + 1] == '+' ? 2 : 1);
      if (std::from_chars(text.data() + begin, text.data() + text.size(), exponent).ec != std::errc())
        return std::nullopt;
      break;
    } else if (c >= '0' && c <= '9') {
      digits += c;
    } else {
      return std::nullopt;
    }
  }
  if (n_whole < 0) n_whole = std::ssize(digits);
  n_whole += exponent;
  if (n_whole > kMaxBoundDigits || n_whole < -kMaxBoundDigits) {
    if (!AllZeros(digits, 0)) return std::nullopt;
    n_whole = 1;
  }
  if (n_whole < 0) digits.insert(0, static_cast<size_t>(-n_whole), '0');
  const auto whole = static_cast<size_t>(std::max<int64_t>(n_whole, 0));
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  out.whole = digits.substr(0, whole);
  out.fraction = digits.substr(whole);
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  if (out.whole.empty()) out.whole = "0";
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  if (out.fraction.size() > kMaxBoundDigits) return std::nullopt;
  return out;
}

void EmitNumber(const NumberLimits& limits, int32_t from, int32_t to, NetworkBuilder* network) {
  if (!limits.low && !limits.high && limits.multiple <= 1) return Plain(limits.integer, from, to, network);
  const Decimal zero;
  if (!limits.high || Compare(limits.high->value, zero) >= 0) {
    auto low = limits.low;
    if (low && Compare(low->value, zero) < 0) low.reset();
    Magnitudes(low, limits.high, limits.integer, limits.multiple, to, network).Emit(from);
  }
  if (!limits.low || Compare(limits.low->value, zero) < 0) {
    const auto mirrored = [](std::optional<NumberLimits::Bound> bound) {
      if (bound) bound->value.negative = false;
      return bound;
    };
    auto least = limits.high && Compare(limits.high->value, zero) < 0
                     ? mirrored(limits.high)
                     : std::optional<NumberLimits::Bound>({zero, true});  // no -0
    const int32_t minus = network->AddNode();
    network->Byte(from, '-', '-', minus);
    Magnitudes(std::move(least), mirrored(limits.low), limits.integer, limits.multiple, to, network).Emit(minus);
  }
}

}  // namespace weir::forms
