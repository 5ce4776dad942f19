// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/attention_with_scores.h"

#include <algorithm>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/column_scores.h"
#include "backend/cpu/column_scores_kernels.h"

namespace weir::cpu {
namespace {

// Above this a panel's weights leave the L2 cache, and recomputing them is as cheap as fetching them.
constexpr int64_t kMaxSlots = 4096;
// The most slots of the voting panels of one AttendRows call together. Sharing decoded keys among panels saves more
// than is lost when their weights together leave that cache.
constexpr int64_t kSharedSlots = 2 * kMaxSlots;

int64_t PaddedSlots(int64_t n_slots) { return (n_slots + kTileSlots - 1) / kTileSlots * kTileSlots; }

// Voting panels of one AttendRows call.
int64_t VotingPanels(int64_t head_dim, int64_t n_slots) {
  return std::clamp<int64_t>(kSharedSlots / std::max<int64_t>(n_slots, 1), 1, MaxPanels(head_dim));
}

struct Layout {
  int64_t thread, weights, stride, n_panels, n_kv_heads;  // in floats, except the last two

  // Never less than for a smaller shape.
  explicit Layout(const AttentionShape& shape) {
    const int64_t n_slots = PaddedSlots(std::min(shape.max_slots, kMaxSlots)), max_panels = MaxPanels(shape.head_dim);
    thread = (AttendRowsFloats(shape.head_dim) + 15) / 16 * 16;
    // One panel, or as many as VotingPanels() lets share decoded keys; each may end inside a tile.
    const int64_t shared = std::min(max_panels * n_slots, kSharedSlots + max_panels * kTileSlots);
    weights = PanelWeightFloats(std::max(n_slots, shared));
    stride = n_slots;
    n_panels = (shape.max_rows * (shape.n_heads / shape.n_kv_heads) + kRowBlock - 1) / kRowBlock;
    n_kv_heads = shape.n_kv_heads;
  }
  int64_t total(int n_threads) const { return n_threads * (thread + weights) + n_kv_heads * n_panels * stride; }
};

// Whether every row's temperature is 1: the noise of a slot is then a factor of its weight.
bool OnlyFactors(const ScoreNoise& noise) { return noise.tau == 1 && (noise.tau_step == 0 || noise.tau_end == 1); }

bool OnePass(const AttentionArgs& args, std::span<const ColumnScoresArgs> scores) {
  if (args.segments.size() != 1 || scores.size() != 1) return false;
  const AttentionSegment& segment = args.segments[0];
  // A single row sums in the order of the second pass, however many rows of other pots are in the call.
  return segment.n_rows > 1 && (!scores[0].noise.on || OnlyFactors(scores[0].noise)) &&
         scores[0].rows == RowReduce::kSum && scores[0].heads != HeadReduce::kMax &&
         segment.n_rows * (args.n_heads / args.n_kv_heads) > kMaxSlotRows &&
         *std::max_element(segment.n_slots, segment.n_slots + args.n_kv_heads) <= kMaxSlots;
}

class Call {
 public:
  Call(const AttentionArgs& args, const ColumnScoresArgs& scores, ThreadPool& pool)
      : args_(args),
        scores_(scores),
        segment_(args.segments[0]),
        pool_(pool),
        max_slots_(*std::max_element(segment_.n_slots, segment_.n_slots + args.n_kv_heads)),
        layout_({args.n_heads, args.n_kv_heads, args.head_dim, segment_.n_rows, max_slots_}),
        group_(args.n_heads / args.n_kv_heads),
        scratch_(static_cast<float*>(args.scratch)),
        sums_(scratch_ + pool.n_threads() * (layout_.thread + layout_.weights)) {}

  void Run() {
    const int64_t n_rows = segment_.n_rows * group_;
    voting_.first = scores_.row_begin * group_;
    voting_.end = scores_.row_end * group_;
    voting_.stride = layout_.stride;
    if (scores_.noise.on && scores_.noise.gumbel) voting_.noise = &scores_.noise;
    // Rows from the first voting panel to the last one in small blocks, the others as usual.
    Add(0, voting_.first_panel() * kRowBlock, RowBlock(args_, n_rows, pool_.n_threads()), false);
    const int64_t end = std::min((voting_.end + kRowBlock - 1) / kRowBlock * kRowBlock, n_rows);
    Add(voting_.first_panel() * kRowBlock, end, VotingPanels(args_.head_dim, max_slots_) * kRowBlock, true);
    Add(end, n_rows, RowBlock(args_, n_rows, pool_.n_threads()), false);
    int64_t n_blocks = 0;
    for (const Range& range : ranges_) n_blocks += range.n_blocks();
    // The last rows see the most slots: longest tasks first.
    pool_.For(n_blocks * args_.n_kv_heads, [&](int64_t task, int worker) {
      RunBlock(n_blocks - 1 - task / args_.n_kv_heads, task % args_.n_kv_heads, worker);
    });
    constexpr int64_t kSlots = 512;  // of one task
    pool_.For((max_slots_ + kSlots - 1) / kSlots,
              [&](int64_t task, int) { Write(task * kSlots, std::min((task + 1) * kSlots, max_slots_)); });
  }

 private:
  struct Range {
    int64_t first = 0, end = 0, block = 1;
    bool votes = false;
    int64_t n_blocks() const { return (end - first + block - 1) / block; }
  };

  void Add(int64_t first, int64_t end, int64_t block, bool votes) { ranges_[n_ranges_++] = {first, end, block, votes}; }

  void RunBlock(int64_t index, int64_t kv_head, int worker) {
    const Range* range = ranges_;
    for (; index >= range->n_blocks(); ++range) index -= range->n_blocks();
    float* scratch = scratch_ + worker * (layout_.thread + layout_.weights);
    const int64_t first = range->first + index * range->block;
    ScoreSink sink = voting_;
    sink.sums = sums_ + kv_head * layout_.n_panels * layout_.stride;
    sink.weights = scratch + layout_.thread;
    AttendRows({&args_, &segment_, kv_head}, first, std::min(range->block, range->end - first),
               range->votes ? &sink : nullptr, scratch);
  }

  // Panels in order, then heads in order.
  void Write(int64_t first, int64_t end) {
    const int64_t n_panels = (voting_.end + kRowBlock - 1) / kRowBlock - voting_.first_panel();
    const bool mean = scores_.heads == HeadReduce::kMean;
    for (int64_t h = 0; h < args_.n_kv_heads; ++h) {
      float* sums = sums_ + h * layout_.n_panels * layout_.stride;
      for (int64_t panel = 1; panel < n_panels; ++panel) AddTo(sums, sums + panel * layout_.stride, first, end);
      if (scores_.all_heads) {
        if (h > 0) AddTo(sums_, sums, first, end);
        continue;
      }
      const int64_t n = std::min<int64_t>(end, segment_.n_slots[h]) - first;
      const float factor = mean ? 1.0f / static_cast<float>(group_) : 1.0f;
      if (n > 0) WriteScores(scores_, sums + first, factor, n, scores_.out[h] + first);
    }
    if (!scores_.all_heads) return;
    const float factor = mean ? 1.0f / static_cast<float>(args_.n_heads) : 1.0f;
    WriteScores(scores_, sums_ + first, factor, end - first, scores_.out[0] + first);
  }

  static void AddTo(float* sums, const float* more, int64_t first, int64_t end) {
    for (int64_t s = first; s < end; ++s) sums[s] += more[s];
  }

  const AttentionArgs& args_;
  const ColumnScoresArgs& scores_;
  const AttentionSegment& segment_;
  ThreadPool& pool_;
  const int64_t max_slots_;
  const Layout layout_;
  const int64_t group_;
  float* const scratch_;
  float* const sums_;  // [n_kv_heads, n_panels, stride]
  ScoreSink voting_;   // without memory
  Range ranges_[3];
  int n_ranges_ = 0;
};

}  // namespace

void AttentionWithScores(const AttentionArgs& args, std::span<const ColumnScoresArgs> scores, ThreadPool& pool) {
  if (OnePass(args, scores)) return Call(args, scores[0], pool).Run();
  Attention(args, pool);
  for (const ColumnScoresArgs& segment : scores) ColumnScores(segment, pool);
}

int64_t AttentionWithScoresScratchBytes(const AttentionShape& shape, int n_threads) {
  return std::max({Layout(shape).total(n_threads) * static_cast<int64_t>(sizeof(float)),
                   AttentionScratchBytes(shape, n_threads), ColumnScoresScratchBytes(shape, n_threads)});
}

}  // namespace weir::cpu
