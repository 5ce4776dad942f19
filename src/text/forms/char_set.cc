// SPDX-License-Identifier: Apache-2.0
#include "text/forms/char_set.h"

#include <algorithm>

#include "base/utf8.h"

namespace weir::forms {
namespace {

constexpr char32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

// Splits until lead bytes and continuation bytes vary independently of one another.
void SplitInto(char32_t lo, char32_t hi, std::vector<ByteSequence>* out) {
  for (const char32_t last : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
    if (lo <= last && last < hi) {
      SplitInto(lo, last, out);
      return SplitInto(last + 1, hi, out);
    }
  }
  if (hi >= 0x80) {
    for (int n_bits = 6; n_bits <= 18; n_bits += 6) {
      const char32_t low_bits = (char32_t{1} << n_bits) - 1;
      if ((lo & ~low_bits) == (hi & ~low_bits)) continue;
      if ((lo & low_bits) != 0) {
        SplitInto(lo, lo | low_bits, out);
        return SplitInto((lo | low_bits) + 1, hi, out);
      }
      if ((hi & low_bits) != low_bits) {
        SplitInto(lo, (hi & ~low_bits) - 1, out);
        return SplitInto(hi & ~low_bits, hi, out);
      }
    }
  }
  std::string first, last;
  AppendUtf8(lo, &first);
  AppendUtf8(hi, &last);
  ByteSequence bytes;
  bytes.n = static_cast<int>(first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    bytes.lo[i] = static_cast<uint8_t>(first[i]);
    bytes.hi[i] = static_cast<uint8_t>(last[i]);
  }
  out->push_back(bytes);
}

}  // namespace

CharSet Clean(CharSet ranges) {
  CharSet split;
  for (CharRange r : ranges) {
    r.hi = std::min(r.hi, kMaxChar);
    if (r.lo > r.hi) continue;
    if (r.hi < kFirstSurrogate || r.lo > kLastSurrogate) {
      split.push_back(r);
      continue;
    }
    if (r.lo < kFirstSurrogate) split.push_back({r.lo, kFirstSurrogate - 1});
    if (r.hi > kLastSurrogate) split.push_back({kLastSurrogate + 1, r.hi});
  }
  std::sort(split.begin(), split.end());
  CharSet out;
  for (const CharRange& r : split) {
    if (!out.empty() && r.lo <= out.back().hi + 1) {
      out.back().hi = std::max(out.back().hi, r.hi);
    } else {
      out.push_back(r);
    }
  }
  return out;
}

CharSet AllBut(const CharSet& set) {
  CharSet out;
  char32_t next = 0;
  for (const CharRange& r : set) {
    if (r.lo > next) out.push_back({next, r.lo - 1});
    next = r.hi + 1;
  }
  if (next <= kMaxChar) out.push_back({next, kMaxChar});
  return Clean(std::move(out));
}

CharSet AllChars() { return AllBut({}); }

CharSet Both(const CharSet& a, const CharSet& b) {
  CharSet out;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    const char32_t lo = std::max(i->lo, j->lo), hi = std::min(i->hi, j->hi);
    if (lo <= hi) out.push_back({lo, hi});
    if (i->hi < j->hi) {
      ++i;
    } else {
      ++j;
    }
  }
  return Clean(std::move(out));
}

CharSet Either(const CharSet& a, const CharSet& b) {
  CharSet out = a;
  out.insert(out.end(), b.begin(), b.end());
  return Clean(std::move(out));
}

std::vector<ByteSequence> SplitUtf8(CharRange range) {
  std::vector<ByteSequence> out;
  SplitInto(range.lo, range.hi, &out);
  return out;
}

}  // namespace weir::forms
