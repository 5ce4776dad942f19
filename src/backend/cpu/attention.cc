// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/attention.h"

#include <algorithm>

#include "backend/cpu/attention_kernels.h"

namespace weir::cpu {
namespace {

// A range of slots is a multiple of kSlotBlock. Long pots have longer ranges instead of more of them: partial results
// stay small, and there are enough tasks for any number of cores.
constexpr int64_t kMaxRanges = 64;
// Heads handled between two joins of the workers; bounds the tables on the stack.
constexpr int64_t kMaxWave = 256;

int64_t RangeSlots(int64_t n_slots) {
  const int64_t n_blocks = (n_slots + kSlotBlock - 1) / kSlotBlock;
  return (n_blocks + kMaxRanges - 1) / kMaxRanges * kSlotBlock;
}

int64_t RangeCount(int64_t n_slots) { return (n_slots + RangeSlots(n_slots) - 1) / RangeSlots(n_slots); }

int64_t ThreadFloats(int64_t head_dim) {
  const int64_t n = std::max(AttendRowsFloats(head_dim), AttendSlotsFloats(head_dim));
  return (n + 15) / 16 * 16;
}

// A head's share of a wave.
struct WaveHead {
  HeadTask task;
  bool by_slots = false;  // AttendSlots over ranges, else AttendRows over blocks of row_block
  int64_t row_block = 0;
  int64_t first_task = 0;  // tasks of the wave before this head's
  int64_t n_tasks = 0;
  float* partials = nullptr;
};

struct Wave {
  WaveHead heads[kMaxWave];
  int64_t n_heads = 0, n_tasks = 0;

  const WaveHead& HeadOf(int64_t task) const {
    const WaveHead* end = heads + n_heads;
    return *(std::upper_bound(heads, end, task, [](int64_t t, const WaveHead& h) { return t < h.first_task; }) - 1);
  }
};

// Tasks [index, index + n) of a head; n is one, unless they are ranges of slots.
void RunTasks(const WaveHead& head, int64_t index, int64_t n, float* scratch) {
  const HeadTask& task = head.task;
  if (head.by_slots) {
    const int64_t range = RangeSlots(task.n_slots());
    const int64_t partial = task.n_query_rows() * PartialFloats(task.args->head_dim);
    AttendSlots(task, index * range, std::min(task.n_slots(), (index + n) * range), range,
                head.partials + index * partial, scratch);
    // A head with only one range needs no second round.
    if (head.n_tasks == 1) MergePartials(task, 1, head.partials);
    return;
  }
  // The last rows see the most slots: longest tasks first.
  const int64_t first = (head.n_tasks - 1 - index) * head.row_block;
  AttendRows(task, first, std::min(head.row_block, task.n_query_rows() - first), nullptr, scratch);
}

void RunWave(const Wave& wave, int64_t thread_floats, float* scratch, ThreadPool& pool) {
  // Ranges of slots are assigned in runs, several per worker: within a run, the next slots are prefetched in time. Not
  // with windows, where all the work is in a few neighbouring ranges.
  const bool by_slots = std::all_of(wave.heads, wave.heads + wave.n_heads, [](const WaveHead& h) {
    return h.by_slots && h.task.segment->first_slot == nullptr;
  });
  const int64_t n_runs = pool.n_threads() * std::clamp<int64_t>(wave.n_tasks / (4 * pool.n_threads()), 1, 4);
  const int64_t run = by_slots ? (wave.n_tasks + n_runs - 1) / n_runs : 1;
  pool.For((wave.n_tasks + run - 1) / run, [&](int64_t i, int worker) {
    const int64_t end = std::min(wave.n_tasks, (i + 1) * run);
    for (int64_t task = i * run; task < end;) {
      const WaveHead& head = wave.HeadOf(task);
      const int64_t n = std::min(end, head.first_task + head.n_tasks) - task;
      RunTasks(head, task - head.first_task, n, scratch + worker * thread_floats);
      task += n;
    }
  });
  const auto needs_merge = [](const WaveHead& head) { return head.by_slots && head.n_tasks > 1; };
  if (!std::any_of(wave.heads, wave.heads + wave.n_heads, needs_merge)) return;
  pool.For(wave.n_heads, [&](int64_t i, int) {
    const WaveHead& head = wave.heads[i];
    if (needs_merge(head)) MergePartials(head.task, head.n_tasks, head.partials);
  });
}

// Partial results of one segment with the most query rows that AttendSlots accepts: at least enough for any head of
// max_slots or fewer, so that waves are as long as the scratch allows. RangeCount is not monotonic in the slots: past
// kMaxRanges blocks it falls to half of that and rises again.
int64_t WaveFloats(int64_t n_kv_heads, int64_t head_dim, int64_t max_slots) {
  const int64_t n_slots = std::clamp<int64_t>(max_slots, 1, kMaxRanges * kSlotBlock);
  return n_kv_heads * RangeCount(n_slots) * kMaxSlotRows * PartialFloats(head_dim);
}

}  // namespace

int64_t RowBlock(const AttentionArgs& args, int64_t n_query_rows, int n_threads) {
  const int64_t even = (n_query_rows * args.n_kv_heads + 3 * n_threads - 1) / (3 * n_threads);
  const int64_t unit = even < kRowBlock ? 16 : kRowBlock;  // whole vectors, or whole panels
  return std::min((even + unit - 1) / unit * unit, MaxPanels(args.head_dim) * kRowBlock);
}

void Attention(const AttentionArgs& args, ThreadPool& pool) {
  const int64_t thread_floats = ThreadFloats(args.head_dim);
  float* scratch = static_cast<float*>(args.scratch);
  float* partials = scratch + pool.n_threads() * thread_floats;
  int64_t max_slots = 1;
  for (const AttentionSegment& segment : args.segments) {
    for (int64_t h = 0; h < args.n_kv_heads; ++h) max_slots = std::max<int64_t>(max_slots, segment.n_slots[h]);
  }
  const int64_t capacity = WaveFloats(args.n_kv_heads, args.head_dim, max_slots);
  Wave wave;
  int64_t used = 0;
  const auto flush = [&] {
    RunWave(wave, thread_floats, scratch, pool);
    wave.n_heads = wave.n_tasks = used = 0;
  };
  for (const AttentionSegment& segment : args.segments) {
    if (segment.n_rows == 0) continue;
    for (int64_t h = 0; h < args.n_kv_heads; ++h) {
      WaveHead head;
      head.task = {&args, &segment, h};
      const int64_t n_rows = head.task.n_query_rows();
      head.by_slots = n_rows <= kMaxSlotRows;
      int64_t need = 0;
      if (head.by_slots) {
        head.n_tasks = RangeCount(head.task.n_slots());
        need = head.n_tasks * n_rows * PartialFloats(args.head_dim);
      } else {
        head.row_block = RowBlock(args, n_rows, pool.n_threads());
        head.n_tasks = (n_rows + head.row_block - 1) / head.row_block;
      }
      if (wave.n_heads == kMaxWave || used + need > capacity) flush();
      head.partials = partials + used;
      used += need;
      head.first_task = wave.n_tasks;
      wave.n_tasks += head.n_tasks;
      wave.heads[wave.n_heads++] = head;
    }
  }
  if (wave.n_heads > 0) flush();
}

int64_t AttentionScratchBytes(const AttentionShape& shape, int n_threads) {
  const int64_t floats =
      n_threads * ThreadFloats(shape.head_dim) + WaveFloats(shape.n_kv_heads, shape.head_dim, shape.max_slots);
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace weir::cpu
