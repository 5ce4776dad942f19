// weir-plugin: selector
// SPDX-License-Identifier: Apache-2.0
// keys: passages that the question would attend to. After ReKV (arXiv 2503.00540), whose blocks are represented by the
// mean of their keys, with heads shared over layers and the attention of a question without content taken off (QRHead,
// arXiv 2506.09944): a(h, B) = softmax over B of scale q_h . e_kv(h),B, and S(B) = the mean over heads of a - a_null.
// A passage's score is how many standard deviations S lies above its mean over all blocks, which does not depend on the
// length of the stream. The keys are scanned twice, first for the softmax's sums, so neither does memory.
#include <algorithm>
#include <cmath>
#include <limits>

#include "recall/passage_text.h"
#include "recall/selectors/selector.h"

namespace weir {
namespace {

// The sum of a softmax over numbers that come one after another: the largest of them, and the sum of exp(x - largest).
struct SoftmaxSum {
  float& most;
  float& sum;
  void Clear() const {
    most = -std::numeric_limits<float>::infinity();
    sum = 0;
  }
  void Add(float x) const {
    if (x > most) {
      sum = sum * std::exp(most - x) + 1;
      most = x;
    } else {
      sum += std::exp(x - most);
    }
  }
  float Share(float x) const { return std::exp(x - most) / sum; }
};

float Dot(const float* a, const int8_t* b, int32_t n) {
  float sum = 0;
  for (int32_t i = 0; i < n; ++i) sum += a[i] * static_cast<float>(b[i]);
  return sum;
}

class Keys final : public Selector {
 public:
  explicit Keys(const Options& options)
      : from_(options.Number("layers_from")), to_(options.Number("layers_to")), full_(options.Number("full")) {
    best_.reserve(kMaxKept + 1);
  }
  int64_t MemoryBytes() const override { return static_cast<int64_t>((kMaxKept + 1) * sizeof(Passage)); }

  Result<std::vector<Passage>> Select(const RecallQuery& query, BlockSource& blocks) override {
    const QuestionVectors& v = *query.vectors;
    const auto asked_sum = [&](size_t h) { return SoftmaxSum{v.scratch[4 * h], v.scratch[4 * h + 1]}; };
    const auto idle_sum = [&](size_t h) { return SoftmaxSum{v.scratch[4 * h + 2], v.scratch[4 * h + 3]}; };
    for (size_t h = 0; 4 * h < v.scratch.size(); ++h) {
      asked_sum(h).Clear();
      idle_sum(h).Clear();
    }
    WEIR_RETURN_IF_ERROR(ForEach(query, [&](const KeyRecord& record, const Passage&) {
      ForEachHead(v, record, [&](size_t h, float asked, float idle) {
        asked_sum(h).Add(asked);
        idle_sum(h).Add(idle);
      });
    }));
    best_.clear();
    double mean = 0, squares = 0, n_blocks = 0;  // Welford 1962
    WEIR_RETURN_IF_ERROR(ForEach(query, [&](const KeyRecord& record, const Passage& passage) {
      double sum = 0;
      int64_t n = 0;
      ForEachHead(v, record, [&](size_t h, float asked, float idle) {
        sum += asked_sum(h).Share(asked) - idle_sum(h).Share(idle);
        ++n;
      });
      sum /= static_cast<double>(std::max<int64_t>(n, 1));
      n_blocks += 1;
      const double off = sum - mean;
      mean += off / n_blocks;
      squares += off * (sum - mean);
      Keep(passage, sum);
    }));
    const double deviation = std::sqrt(squares / std::max(n_blocks, 1.0));
    std::vector<Passage> out;
    for (Passage one : best_) {
      if (std::ssize(out) == query.most) break;
      // The words may be gone before their keys are.
      WEIR_ASSIGN_OR_RETURN(const bool there, HasPassage(one, blocks));
      if (!there) continue;
      one.score = deviation > 0 ? std::clamp((one.score - mean) / deviation / full_, 0.0, 1.0) : 0;
      one.held = one.seq >= query.held_from;
      out.push_back(one);
    }
    return out;
  }

 private:
  static constexpr size_t kMaxKept = 256;

  // Calls `each(record, passage)` for every block that may be brought back.
  template <typename Each>
  Status ForEach(const RecallQuery& query, const Each& each) {
    const VectorShape& shape = query.vectors->shape;
    BlockPlace before = -1;  // of the block that ends where this one begins
    int64_t before_end = -1;
    bool text_before = false;
    return query.keys->Scan(query.keys->begin(), [&](BlockPlace, const Block& block) {
      if (!IsKeyRecord(block, shape)) return true;
      const KeyRecord record = {block, shape};
      // The file may come from anywhere.
      for (int64_t head = 0; head < shape.n_heads(); ++head) {
        if (!std::isfinite(record.scale(head))) return true;
      }
      const bool follows = before_end == block.seq;
      const bool picture = block.modality != Modality::kText;
      Passage passage = {.from = record.place(), .seq = block.seq, .seq_end = block.seq_end(), .t_ms = block.t_ms};
      passage.whole = true;
      if (picture) passage.n_rows = block.n_tokens;
      if (follows && text_before) {
        passage.from = before;
        passage.n_before = picture ? 0 : 1;
        passage.n_blocks = picture ? 2 : 1;
      }
      if (block.role == Role::kInput || (block.role == Role::kAnswer && query.answers)) each(record, passage);
      before = record.place();
      before_end = block.seq_end();
      text_before = !picture;
      return true;
    });
  }

  // Calls `each(head, product with the question, with nothing)` for the query heads of the chosen layers.
  template <typename Each>
  void ForEachHead(const QuestionVectors& v, const KeyRecord& record, const Each& each) const {
    const int32_t n_layers = v.shape.n_layers;
    const auto first = static_cast<int32_t>(from_ * n_layers), last = static_cast<int32_t>(to_ * n_layers);
    for (size_t h = 0; h < v.heads.size(); ++h) {
      const QuestionVectors::Head& head = v.heads[h];
      if (head.layer < first || head.layer >= last) continue;
      const float scale = v.scale * record.scale(head.kv);
      const int8_t* const key = record.key(head.kv);
      each(h, scale * Dot(v.question.data() + head.first, key, head.dim),
           scale * Dot(v.nothing.data() + head.first, key, head.dim));
    }
  }

  // Blocks come in the order of the stream: among equals the newest goes first.
  void Keep(Passage passage, double score) {
    if (best_.size() == kMaxKept && score < best_.back().score) return;
    passage.score = score;
    best_.insert(std::ranges::lower_bound(best_, score, std::greater(), &Passage::score), passage);
    if (best_.size() > kMaxKept) best_.pop_back();
  }

  const double from_, to_, full_;
  std::vector<Passage> best_;
};

constexpr OptionInfo kOptions[] = {
    {.key = "layers_from",
     .fallback = 0,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the layers before the first that is used"},
    {.key = "layers_to",
     .fallback = 1,
     .min = 0,
     .max = 1,
     .integral = false,
     .help = "share of the layers behind the last that is used"},
    {.key = "full",
     .fallback = 20,
     .min = 1,
     .max = 1000,
     .integral = false,
     .help = "standard deviations above the mean that count as a whole match"},
};

}  // namespace

extern const SelectorInfo kKeysSelector;
const SelectorInfo kKeysSelector = {
    .name = "keys",
    .summary = "passages that the question would attend to, by the mean of their keys",
    .source = "ReKV, arXiv 2503.00540; QRHead, arXiv 2506.09944",
    .options = kOptions,
    .needs_keys = true,
    .make = [](const Options& options) { return std::unique_ptr<Selector>(new Keys(options)); },
};

}  // namespace weir
