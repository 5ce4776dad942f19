// SPDX-License-Identifier: Apache-2.0
#include "kv/axes.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace weir {
namespace {

void Set(int32_t time, int32_t line, int32_t column, int64_t at, int32_t* pos, int64_t stride) {
  pos[at] = time;
  pos[stride + at] = line;
  pos[2 * stride + at] = column;
}

// Pairs begin, begin + step ... before end follow an axis.
struct PairRun {
  int axis;
  int64_t begin, end, step;
};

// All pairs of a head, each in one of them.
class PairRuns {
 public:
  PairRuns(const AxisPairs& pairs, int64_t n_pairs) {
    const int64_t time = pairs.n[0], lines = pairs.n[1], columns = pairs.n[2];
    if (pairs.alternate) {
      runs_[0] = {0, 0, n_pairs, kAxes};
      runs_[1] = {1, 1, kAxes * lines, kAxes};
      runs_[2] = {2, 2, kAxes * columns, kAxes};
      runs_[3] = {0, kAxes * lines + 1, n_pairs, kAxes};
      runs_[4] = {0, kAxes * columns + 2, n_pairs, kAxes};
    } else {
      runs_[0] = {0, 0, time, 1};
      runs_[1] = {1, time, time + lines, 1};
      runs_[2] = {2, time + lines, time + lines + columns, 1};
    }
  }
  const PairRun* begin() const { return runs_; }
  const PairRun* end() const { return std::end(runs_); }

 private:
  PairRun runs_[5] = {};  // empty ones do no harm
};

}  // namespace

void HeldPositions(std::span<const SlotMeta> slots, int32_t* scratch, int32_t* pos, int64_t stride) {
  const int64_t n = std::ssize(slots);
  int32_t next = 0;
  for (int64_t begin = 0, end = 0; begin < n; begin = end) {
    end = begin + 1;
    if (slots[begin].modality == Modality::kText) {
      Set(next, next, next, begin, pos, stride);
      ++next;
      continue;
    }
    while (end < n && slots[end].modality != Modality::kText && slots[end].frame() == slots[begin].frame()) ++end;
    // The columns with held tokens, in order.
    for (int64_t i = begin; i < end; ++i) scratch[i - begin] = ColumnOf(slots[i]);
    std::sort(scratch, scratch + (end - begin));
    int32_t* const last = std::unique(scratch, scratch + (end - begin));
    int32_t line = 0;
    for (int64_t i = begin; i < end; ++i) {
      if (i > begin && LineOf(slots[i]) != LineOf(slots[i - 1])) ++line;
      const int64_t column = std::lower_bound(scratch, last, ColumnOf(slots[i])) - scratch;
      Set(next, next + line, next + static_cast<int32_t>(column), i, pos, stride);
    }
    next += std::max(line + 1, static_cast<int32_t>(last - scratch));
  }
}

void StreamPositions(std::span<const SlotMeta> tokens, int64_t shift, int32_t* pos, int64_t stride) {
  for (int64_t i = 0; i < std::ssize(tokens); ++i) {
    const SlotMeta& token = tokens[i];
    const bool text = token.modality == Modality::kText;
    const int32_t base = static_cast<int32_t>((text ? token.seq : token.frame()) + shift);
    Set(base, base + (text ? 0 : LineOf(token)), base + (text ? 0 : ColumnOf(token)), i, pos, stride);
  }
}

void AxisAngles(const RopeTable& table, const AxisPairs& pairs, const int32_t* pos, int64_t stride, int64_t n,
                float* cos, float* sin) {
  const int64_t n_pairs = table.n_rot / 2;
  const PairRuns runs(pairs, n_pairs);
  for (int64_t i = 0; i < n; ++i) {
    for (const PairRun& run : runs) {
      const double at = pos[run.axis * stride + i];
      for (int64_t pair = run.begin; pair < run.end; pair += run.step) {
        cos[i * n_pairs + pair] = static_cast<float>(std::cos(at * table.inv_freq[pair]));
        sin[i * n_pairs + pair] = static_cast<float>(std::sin(at * table.inv_freq[pair]));
      }
    }
  }
}

void AxisAnglesByTable(const RopeTable& table, const AxisPairs& pairs, const int32_t* pos, int64_t stride, int64_t n,
                       float* cos, float* sin) {
  const int64_t n_pairs = table.n_rot / 2;
  const PairRuns runs(pairs, n_pairs);
  for (int64_t i = 0; i < n; ++i) {
    for (const PairRun& run : runs) {
      const int64_t at = pos[run.axis * stride + i], base = at / kRopeTile * n_pairs, off = at % kRopeTile * n_pairs;
      const float *base_cos = &table.base_cos[base], *base_sin = &table.base_sin[base];
      const float *off_cos = &table.off_cos[off], *off_sin = &table.off_sin[off];
      for (int64_t pair = run.begin; pair < run.end; pair += run.step) {
        cos[i * n_pairs + pair] = base_cos[pair] * off_cos[pair] - base_sin[pair] * off_sin[pair];
        sin[i * n_pairs + pair] = base_sin[pair] * off_cos[pair] + base_cos[pair] * off_sin[pair];
      }
    }
  }
}

}  // namespace weir
