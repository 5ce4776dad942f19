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

// Whether a token belongs to the picture, or to the video, of the token that is held before it.
bool GoesOn(const SlotMeta& before, const SlotMeta& m) {
  if (m.modality == Modality::kText || before.modality == Modality::kText) return false;
  if (m.frame() == before.frame()) return true;
  return StepsOf(m) >= 0 && before.modality == m.modality && ColumnsOf(before) == ColumnsOf(m);
}

// rank[i] = first + how many of the other numbers of(slot) are less than slots[i]'s, each counted once; gives how many
// there are. `scratch`: one for each slot.
int32_t Rank(std::span<const SlotMeta> slots, int32_t (*of)(const SlotMeta&), int32_t first, int32_t* scratch,
             int32_t* rank) {
  int32_t* last = scratch;
  for (const SlotMeta& m : slots) {
    const int32_t number = of(m);
    int32_t* const at = last == scratch || last[-1] < number ? last : std::lower_bound(scratch, last, number);
    if (at < last && *at == number) continue;
    std::copy_backward(at, last, last + 1);
    *at = number;
    ++last;
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    rank[i] = first + static_cast<int32_t>(std::lower_bound(scratch, last, of(slots[i])) - scratch);
  }
  return static_cast<int32_t>(last - scratch);
}

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
    while (end < n && GoesOn(slots[end - 1], slots[end])) ++end;
    const std::span<const SlotMeta> video = slots.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    int32_t time = 0, n_of_frame = 0;
    for (int64_t i = begin; i < end; ++i, ++n_of_frame) {
      if (i > begin && slots[i].frame() != slots[i - 1].frame()) {
        time += std::min(StepsOf(slots[i]), n_of_frame);
        n_of_frame = 0;
      }
      pos[i] = next + time;
    }
    const int32_t n_lines = Rank(video, LineOf, next, scratch, pos + stride + begin);
    const int32_t n_columns = Rank(video, ColumnOf, next, scratch, pos + 2 * stride + begin);
    next += std::max({time + 1, n_lines, n_columns});
  }
}

void StreamPositions(std::span<const SlotMeta> tokens, int64_t shift, int32_t* pos, int64_t stride, int64_t time) {
  for (int64_t i = 0; i < std::ssize(tokens); ++i) {
    const SlotMeta& token = tokens[i];
    const bool text = token.modality == Modality::kText;
    const int32_t base = static_cast<int32_t>((text ? token.seq : token.frame()) + shift);
    Set(base + static_cast<int32_t>(time), base + (text ? 0 : LineOf(token)), base + (text ? 0 : ColumnOf(token)), i,
        pos, stride);
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
