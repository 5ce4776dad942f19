// SPDX-License-Identifier: Apache-2.0
#include "serve/trace_context.h"

#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <span>

namespace weir {
namespace {

constexpr size_t kMostStateBytes = 512, kMostStateMembers = 32, kMostKeyBytes = 256, kMostValueBytes = 256;
constexpr std::string_view kHexDigits = "0123456789abcdef";

// Capital letters are no digits here.
bool ReadHex(std::string_view text, std::span<uint8_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t high = kHexDigits.find(text[2 * i]), low = kHexDigits.find(text[2 * i + 1]);
    if (high == kHexDigits.npos || low == kHexDigits.npos) return false;
    out[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

std::string HexText(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t byte : bytes) {
    out += kHexDigits[byte >> 4];
    out += kHexDigits[byte & 15];
  }
  return out;
}

bool AllZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

// A generator of each thread's own: ids must differ, and guessing them gains nothing.
void FillRandom(std::span<uint8_t> out) {
  thread_local std::mt19937_64 generator = [] {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed)) seed = std::random_device()();
    return std::mt19937_64(seed);
  }();
  do {
    for (size_t at = 0; at < out.size(); at += sizeof(uint64_t)) {
      const uint64_t word = generator();
      std::memcpy(out.data() + at, &word, std::min(sizeof(word), out.size() - at));
    }
  } while (AllZero(out));
}

std::string_view WithoutBlanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

bool IsStateKey(std::string_view key) {
  const auto fine = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '*' || c == '/' || c == '@';
  };
  const auto first = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !key.empty() && key.size() <= kMostKeyBytes && first(key[0]) && std::all_of(key.begin(), key.end(), fine) &&
         std::count(key.begin(), key.end(), '@') <= 1 && key.back() != '@';
}

bool IsStateValue(std::string_view value) {
  return !value.empty() && value.size() <= kMostValueBytes &&
         std::all_of(value.begin(), value.end(), [](char c) { return c >= 0x20 && c <= 0x7E && c != ',' && c != '='; });
}

}  // namespace

std::optional<TraceContext> ParseTraceParent(std::string_view text) {
  constexpr size_t kBytes = 55;  // of version 00, and the beginning of later ones
  text = WithoutBlanks(text);
  if (text.size() < kBytes || text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  uint8_t version = 0, flags = 0;
  TraceContext out;
  if (!ReadHex(text, {&version, 1}) || version == 0xFF || !ReadHex(text.substr(3), out.trace_id) ||
      !ReadHex(text.substr(36), out.span_id) || !ReadHex(text.substr(53), {&flags, 1})) {
    return std::nullopt;
  }
  if (text.size() > kBytes && (version == 0 || text[kBytes] != '-')) return std::nullopt;
  if (AllZero(out.trace_id) || AllZero(out.span_id)) return std::nullopt;
  out.sampled = (flags & 1) != 0;
  return out;
}

std::string ParseTraceState(std::string_view text) {
  std::string out;
  std::set<std::string_view> keys;
  bool full = false;
  while (!text.empty()) {
    const std::string_view member = WithoutBlanks(text.substr(0, text.find(',')));
    text.remove_prefix(std::min(text.find(',') == text.npos ? text.size() : text.find(',') + 1, text.size()));
    if (member.empty()) continue;
    const size_t equals = member.find('=');
    if (equals == member.npos || !IsStateKey(member.substr(0, equals)) || !IsStateValue(member.substr(equals + 1)) ||
        !keys.insert(member.substr(0, equals)).second || keys.size() > kMostStateMembers) {
      return "";
    }
    full = full || out.size() + 1 + member.size() > kMostStateBytes;
    if (full) continue;
    if (!out.empty()) out += ',';
    out += member;
  }
  return out;
}

std::string TraceParentText(const TraceContext& context) {
  return "00-" + HexText(context.trace_id) + "-" + HexText(context.span_id) + (context.sampled ? "-01" : "-00");
}

TraceContext NewTrace() {
  TraceContext out;
  FillRandom(out.trace_id);
  FillRandom(out.span_id);
  return out;
}

SpanId NewSpanId() {
  SpanId out;
  FillRandom(out);
  return out;
}

bool InSample(const TraceId& id, double ratio) {
  if (ratio >= 1) return true;
  if (!(ratio > 0)) return false;
  // The lower half of an id is random, whoever made it.
  uint64_t value = 0;
  for (size_t i = 8; i < id.size(); ++i) value = value << 8 | id[i];
  return static_cast<double>(value >> 11) < std::ldexp(ratio, 53);
}

std::string IdText(const TraceId& id) { return HexText(id); }
std::string IdText(const SpanId& id) { return HexText(id); }

}  // namespace weir
