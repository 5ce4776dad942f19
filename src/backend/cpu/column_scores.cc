// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/column_scores.h"

#include <algorithm>

#include "backend/cpu/column_scores_kernels.h"

namespace weir::cpu {
namespace {

// Tasks of a batch: each starts by preparing the queries and merging the maxima of all blocks, so long pots have longer
// tasks instead of more of them.
constexpr int64_t kMaxTasks = 64;

// Layout of the scratch, in floats.
struct Layout {
  int64_t head_dim, n_kv_heads, n_blocks, n_slots;  // n_slots padded to whole blocks

  Layout(int64_t head_dim, int64_t n_kv_heads, int64_t max_slots)
      : head_dim(head_dim), n_kv_heads(n_kv_heads), n_blocks(SlotBlocks(max_slots)), n_slots(n_blocks * kSlotBlock) {}

  int64_t weights() const { return kBatchRows * n_slots; }
  // A batch's row count is padded to 16 where lanes are rows.
  int64_t stats() const { return (kBatchRows + 16 * std::min(n_kv_heads, kBatchRows)) * n_blocks; }
  int64_t sums() const { return n_kv_heads * n_slots; }
  int64_t thread() const { return (ScoreBlocksFloats(head_dim) + 15) / 16 * 16; }
  int64_t total(int n_threads) const { return weights() + 2 * stats() + 2 * sums() + n_threads * thread(); }
};

class Call {
 public:
  Call(const ColumnScoresArgs& args, ThreadPool& pool)
      : args_(args), pool_(pool), layout_(args.attention.head_dim, args.attention.n_kv_heads, MaxSlots(args)) {
    float* at = static_cast<float*>(args.scratch);
    const auto take = [&](int64_t n) {
      float* p = at;
      at += n;
      return p;
    };
    weights_ = take(layout_.weights());
    max_ = take(layout_.stats());
    sum_ = take(layout_.stats());
    row_sums_ = take(layout_.sums());
    scores_ = take(layout_.sums());
    threads_ = at;
    task_blocks_ = (layout_.n_blocks + kMaxTasks - 1) / kMaxTasks;
    n_tasks_ = (layout_.n_blocks + task_blocks_ - 1) / task_blocks_;
  }

  void Run() {
    const AttentionArgs& attention = args_.attention;
    for (int64_t h = 0; h < attention.n_kv_heads; ++h) {
      ScoreBatch batch;
      batch.args = &args_;
      batch.task = {&attention, &attention.segments[0], h};
      batch.row_sums = row_sums_ + h * layout_.n_slots;
      batch.scores = scores_ + h * layout_.n_slots;
      const int64_t n = batch.n_query_rows();
      // Even parts, in whole groups of four rows, because the kernel shares keys among four.
      const int64_t n_parts = (n + kBatchRows - 1) / kBatchRows;
      const int64_t part = ((n + n_parts - 1) / n_parts + 3) / 4 * 4;
      for (batch.first = 0; batch.first < n; batch.first += part) {
        batch.n = std::min(part, n - batch.first);
        Add(batch);
      }
    }
    Flush();
    if (args_.all_heads) WriteAllHeads();
  }

 private:
  static int64_t MaxSlots(const ColumnScoresArgs& args) {
    const int32_t* n_slots = args.attention.segments[0].n_slots;
    return *std::max_element(n_slots, n_slots + args.attention.n_kv_heads);
  }

  // Batches of different KV heads run together while they fit.
  void Add(ScoreBatch batch) {
    if (n_rows_ + batch.n > kBatchRows) Flush();
    batch.weights = weights_ + n_rows_ * layout_.n_slots;
    batch.max = max_ + n_padded_ * layout_.n_blocks;
    batch.sum = sum_ + n_padded_ * layout_.n_blocks;
    n_rows_ += batch.n;
    n_padded_ += batch.n_padded();
    batches_[n_batches_++] = batch;
  }

  void Flush() {
    pool_.For(n_batches_ * n_tasks_, [&](int64_t task, int worker) {
      const int64_t block = task % n_tasks_ * task_blocks_;
      ScoreBlocks(batches_[task / n_tasks_], block, block + task_blocks_, threads_ + worker * layout_.thread());
    });
    pool_.For(n_batches_ * n_tasks_, [&](int64_t task, int) {
      const ScoreBatch& batch = batches_[task / n_tasks_];
      const int64_t block = task % n_tasks_ * task_blocks_;
      ReduceBlocks(batch, block, block + task_blocks_);
      if (batch.is_last() && !args_.all_heads) WriteHead(batch, block * kSlotBlock);
    });
    n_batches_ = n_rows_ = n_padded_ = 0;
  }

  void WriteHead(const ScoreBatch& batch, int64_t first) {
    const int64_t n = std::min(batch.task.n_slots() - first, task_blocks_ * kSlotBlock);
    const float factor = args_.heads == HeadReduce::kMean ? 1.0f / static_cast<float>(batch.task.group()) : 1.0f;
    if (n > 0) WriteScores(args_, batch.scores + first, factor, n, args_.out[batch.task.kv_head] + first);
  }

  // KV heads in order, into the sums of the first one.
  void WriteAllHeads() {
    const int64_t n_slots = args_.attention.segments[0].n_slots[0];
    const bool max = args_.heads == HeadReduce::kMax;
    for (int64_t h = 1; h < layout_.n_kv_heads; ++h) {
      const float* more = scores_ + h * layout_.n_slots;
      for (int64_t s = 0; s < n_slots; ++s) scores_[s] = max ? std::max(scores_[s], more[s]) : scores_[s] + more[s];
    }
    const float n_heads = static_cast<float>(args_.attention.n_heads);
    WriteScores(args_, scores_, args_.heads == HeadReduce::kMean ? 1.0f / n_heads : 1.0f, n_slots, args_.out[0]);
  }

  const ColumnScoresArgs& args_;
  ThreadPool& pool_;
  const Layout layout_;
  float* weights_;
  float* max_;
  float* sum_;
  float* row_sums_;
  float* scores_;
  float* threads_;
  int64_t task_blocks_, n_tasks_;
  ScoreBatch batches_[kBatchRows];  // what the next Flush() runs
  int64_t n_batches_ = 0, n_rows_ = 0, n_padded_ = 0;
};

}  // namespace

void WriteScores(const ColumnScoresArgs& args, const float* scores, float factor, int64_t n, float* out) {
  const float weight = args.weight * factor;
  for (int64_t s = 0; s < n; ++s) {
    const float score = scores[s] * weight;
    if (!args.accumulate) {
      out[s] = score;
    } else {
      out[s] = args.rows == RowReduce::kSum ? out[s] + score : std::max(out[s], score);
    }
  }
}

void ColumnScores(const ColumnScoresArgs& args, ThreadPool& pool) { Call(args, pool).Run(); }

int64_t ColumnScoresScratchBytes(const AttentionShape& shape, int n_threads) {
  const Layout layout(shape.head_dim, shape.n_kv_heads, std::max<int64_t>(shape.max_slots, 1));
  return layout.total(n_threads) * static_cast<int64_t>(sizeof(float));
}

}  // namespace weir::cpu
