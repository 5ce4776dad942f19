// SPDX-License-Identifier: Apache-2.0
#include "repeated_lines.h"

#include <bit>
#include <utility>

namespace weir::app {
namespace {

constexpr uint64_t kStart = 0xcbf29ce484222325, kPrime = 0x100000001b3;  // FNV-1a

uint64_t Mix(uint64_t hash, uint64_t value) { return (hash ^ value) * kPrime; }

}  // namespace

uint64_t RepeatedLines::Shape(std::string_view line) {
  uint64_t out = kStart, word = kStart;
  bool in_word = false, has_digit = false;
  const auto end_word = [&] {
    if (in_word) out = Mix(out, has_digit ? 1 : word);
    word = kStart;
    in_word = has_digit = false;
  };
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    const bool digit = byte >= '0' && byte <= '9';
    if (digit || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte >= 0x80) {
      word = Mix(word, byte);
      in_word = true;
      has_digit = has_digit || digit;
    } else if (c != '\n' && c != '\r') {
      end_word();
      out = Mix(out, byte);
    }
  }
  end_word();
  return out;
}

int64_t RepeatedLines::Entries(int64_t window) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * window)));
}

int64_t RepeatedLines::Bytes(int64_t window) {
  return PageRound(Entries(window) * static_cast<int64_t>(sizeof(Entry)));
}

Result<RepeatedLines> RepeatedLines::Make(int64_t window, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(HostBuffer table, HostBuffer::Allocate(ledger, MemTag::kOther, Bytes(window)));
  return RepeatedLines(window, std::move(table));
}

bool RepeatedLines::IsNew(std::string_view line) {
  ++n_lines_;
  const uint64_t shape = Shape(line);
  // The low bits of a product by an odd number depend on low bits only.
  const uint64_t spread = (shape ^ (shape >> 32)) * 0x9E3779B97F4A7C15;
  const auto entries = static_cast<uint64_t>(Entries(window_));
  Entry& entry = table_.as<Entry>()[(spread >> 32) & (entries - 1)];
  if (entry.line > 0 && entry.shape == shape && n_lines_ - entry.line < window_) {
    ++n_same_;
    return false;
  }
  entry = {shape, n_lines_};
  return true;
}

}  // namespace weir::app
