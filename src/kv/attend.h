// SPDX-License-Identifier: Apache-2.0
// The one call a model makes per layer: append its keys and values to every pot of the batch, attend, and return the
// output.
//
// An Attender is planned once per forward pass (Plan() takes the batch's segments) and consumed layer by layer. The
// model knows nothing of slots, positions or policies.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/memory.h"
#include "base/status.h"
#include "kv/axes.h"
#include "kv/store.h"
#include "ops/column_scores.h"
#include "ops/rope.h"

namespace weir {

// One layer's heads, and where its keys and values are.
struct LayerHeads {
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  // >= 0: it reads the keys and values that this earlier layer stored, and stores none. REQUIRES: that layer stores its
  // own, as many heads of the same size; both have a window, or none.
  int32_t kv_layer = -1;
};

// The model's attention parameters: data that an architecture returns, never a switch elsewhere.
struct AttentionLayout {
  int32_t n_layers = 0;                               // that attend; a model may have others
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;  // of every layer; the most of any layer where they differ
  std::vector<LayerHeads> layers;                     // [n_layers] where they differ, by SetLayers(); empty: none does
  float scale = 0;                                    // 1 / sqrt(head_dim) for most
  float softcap = 0;                                  // scores are softcap * tanh(score / softcap); 0: no cap
  // [n_layers] pointers to a sink for each head (AttentionArgs::sinks), the model's; or empty: none.
  std::vector<const float*> sinks;
  // The layers' matrices are quantised, so that queries, keys and values carry the rounding of their 8-bit activations:
  // prompts may be read with AttentionArgs::bf16 (docs/decisions/0013-prompts-in-bf16.md), unless the pot holds F32.
  bool bf16 = false;
  RopeConfig rope;  // n_rot = 0: no rotary embedding
  // Layers that rotate nothing, whatever the position policy: their keys have no position, only an order. [n_layers],
  // or empty: none.
  std::vector<bool> plain_layers;
  bool rotates(int32_t layer) const {
    const RopeConfig& own = is_window(layer) && window_rope ? *window_rope : rope;
    return own.n_rot > 0 && (plain_layers.empty() || !plain_layers[layer]);
  }
  AxisPairs axis_pairs{};  // where positions have three axes (kv/axes.h): rope.n_rot / 2 together
  bool has_axes() const { return axis_pairs.total() > 0; }
  // Values are keys (PotShape::values_in_keys): Attend()'s v is k. What a query scores and what it takes are the same
  // numbers, rotated ones apart: a family reads those of `out` that were never rotated.
  bool values_in_keys = false;
  // F32 numbers that layers without keys and values keep of a stream (kv/recurrent_state.h). Those layers are not
  // counted in n_layers.
  int64_t n_state = 0;
  int32_t n_state_layers = 0;  // so many
  // Rows of a table of learned positions that the model adds to its input (Attender::positions()); 0: none.
  int32_t n_learned_positions = 0;
  // A picture's rows that are read in one forward pass see each other (AttentionSegment::two_way), in all layers or in
  // those with a window alone.
  bool two_way_pictures = false, two_way_windows_only = false;
  // Then the most rows of a picture of the released models, which a chunk has room for by default.
  int32_t picture_rows = 0;
  bool shows_positions = false;  // Attender::positions() for other purposes, without that limit
  // Layers with a sliding window: a row sees entries less than `window` positions before it, with positions as RoPE
  // sees them (docs/decisions/0007-windows-count-positions.md). They have the pot's slots, like the others, or slots of
  // their own (PotShape::windows), where every distance is that of the stream.
  int32_t window = 0;
  std::vector<bool> window_layers;        // [n_layers], or empty: none
  std::optional<RopeConfig> window_rope;  // their rotary embedding if it is not `rope`

  bool has_windows() const { return !window_layers.empty(); }
  bool is_window(int32_t layer) const { return has_windows() && window_layers[layer]; }

  // Sets the layers and the most of any of them.
  void SetLayers(std::vector<LayerHeads> all);
  LayerHeads heads_of(int32_t layer) const {
    return layers.empty() ? LayerHeads{n_heads, n_kv_heads, head_dim} : layers[layer];
  }
  bool stores(int32_t layer) const { return layers.empty() || layers[layer].kv_layer < 0; }
  // Whether layers with a window can have slots of their own: some do without one.
  bool can_hold_windows_apart() const;
  // The pot's layer that a layer reads, or that of its windows, if these have slots of their own: each has the layers
  // of its kind that store.
  int32_t pot_layer(int32_t layer, bool apart = false) const;
  // Of the layers that store: n_layers, n_kv_heads, head_dim and layers; and, if windows have slots of their own,
  // window and layers of these.
  PotShape pot(bool apart = false) const;
};

// kOverBudget when a token at position `end` - 1 would need more learned positions than the model has.
Status CheckLearnedPositions(const AttentionLayout& layout, Positions positions, int64_t end);

// Statistics to collect from a segment during attention: which of its rows vote, and how they are reduced. They go to
// the pot's scores, one group per layer (PotShape::granularity kPerLayer) or per KV head (kPerHead). Layers that read
// the same keys vote together: of sums over rows the scores are the mean over these layers, of maxima the largest.
struct EvidenceCall {
  int64_t row_begin = 0, row_end = 0;  // relative to the segment's first row
  RowReduce rows = RowReduce::kSum;
  HeadReduce heads = HeadReduce::kMean;
  bool accumulate = false;  // add to the scores, or replace them
  ScoreNoise noise;         // layer, rows and heads are set here; the call's seed is NoiseMix(NoiseMix(seed) + layer)
  // Working memory, one float for each slot of the largest head. If set, scores of text are accumulated and those of
  // visual slots are replaced by the last voting row's. REQUIRES: kPerLayer, RowReduce::kSum.
  float* latest = nullptr;
};

// Attention for inspection, independent of any statistics: after a pass, how much a segment's newest row attended to
// every slot, mean over the layer's query heads.
struct AttentionWatch {
  float* out = nullptr;  // [n_layers of the pot, stride]
  int64_t stride = 0;    // at least the slots of the largest layer
};

// New rows of one pot within a batch. BeginAppend() was already called for them.
struct BatchSegment {
  Pot* pot = nullptr;
  int64_t first_row = 0, n_rows = 0;
  int64_t first_seq = 0;  // stream number of the first row's token: its position under kAbs
  const EvidenceCall* evidence =
      nullptr;  // REQUIRES: SlotFloat::kScore in the pot and an Attender made with statistics
  // [n_groups of the pot]: the slots that these rows read, ascending, ending with their own; nullptr: all. REQUIRES: no
  // evidence.
  const std::vector<int32_t>* reads = nullptr;
  // REQUIRES: an Attender made with statistics, a layer whose heads hold the same slots, no reads.
  const AttentionWatch* watch = nullptr;
  // Metadata of the rows, [n_rows], valid until Plan() returns, for layouts with two_way_pictures, for positions with
  // three axes, and for rows that left others behind (below); for three axes under kAbs also how far the position of
  // the first row, or of its picture, is behind its seq (pictures take fewer positions than rows).
  const SlotMeta* tokens = nullptr;
  int64_t pos_shift = 0;
  int64_t video_time = 0;  // of a frame that continues a video: as StreamPositions()
  // Rows of the same pot in earlier and in later segments of the batch, which come before and after these in the
  // stream. Each segment sees what is before it. REQUIRES, if there are any: no three axes, no state.
  int64_t n_before = 0, n_after = 0;
  // The rows' slots were taken in an earlier pass, and rows between them may be gone: under kAbs their positions are
  // the tokens' seqs. REQUIRES: no windows. n_after counts the slots after theirs.
  bool has_slots = false;
};

class Attender {
 public:
  // Sized for batches of up to max_rows rows over pots of up to max_slots slots a head, with or without statistics;
  // reserves all the memory it will ever need. `n_context`: as RopeTable::Make().
  static Result<std::unique_ptr<Attender>> Make(Backend& backend, const AttentionLayout& layout, int64_t max_rows,
                                                int64_t max_slots, int64_t n_context, bool statistics, Ledger& ledger);
  // Bytes Make() reserves: rotary tables (kMeta), angles and scratch (kWorkspace).
  static int64_t MetaBytes(const Backend& backend, const AttentionLayout& layout, int64_t max_slots);
  static int64_t WorkspaceBytes(const Backend& backend, const AttentionLayout& layout, int64_t max_rows,
                                int64_t max_slots, bool statistics);

  // Called before each layer's attention of the planned pass, on its thread; nullptr: nothing. What it calls may use
  // other pots and other Attenders.
  void CallBetween(const std::function<void()>* call) { between_ = call; }
  // Plans a forward pass. All pots of a batch share KV types and position policy, and have windows with slots of their
  // own or not (kInvalidArgument otherwise).
  // kOverBudget when a row would need a learned position beyond the model's table.
  Status Plan(std::span<const BatchSegment> segments);

  // q: [n_rows, n_heads * head_dim], k, v: [n_rows, n_kv_heads * head_dim] of this layer, none rotated; out as q. Rows
  // contiguous. k and v are nullptr for a layer that does not store its own; such a layer may leave out the first rows:
  // q and out then begin with row first_row. REQUIRES for that: MayLeaveOutRows().
  void Attend(int32_t layer, const float* q, const float* k, const float* v, float* out, int64_t first_row = 0);
  // One segment is planned, and its rows do not vote.
  bool MayLeaveOutRows() const { return segments_.size() == 1 && segments_.front().evidence == nullptr; }

  // Positions of the planned rows, [n_rows], for a model that needs them (nullptr otherwise): a row's number in its
  // stream under kAbs, otherwise the number of slots of its pot in use once it is stored, less one. What was added at
  // the input is part of every key and value, so kept entries retain the positions they were read at. Numbers stay at
  // the largest int32_t from there on.
  const int32_t* positions() const { return positions_.bytes() > 0 ? positions_.as<int32_t>() : nullptr; }

  const AttentionLayout& layout() const { return layout_; }
  // The planned rows, for layers that keep a state in the pot.
  std::span<const BatchSegment> segments() const { return segments_; }

 private:
  // Whether a layer has the slots of Pot::windows(); the pot or windows whose slots it has, and its number there.
  bool in_windows(int32_t layer) const { return apart_ && layout_.is_window(layer); }
  const Pot& PotOf(const BatchSegment& segment, int32_t layer) const {
    return in_windows(layer) ? *segment.pot->windows() : *segment.pot;
  }
  int32_t PotLayer(int32_t layer) const { return pot_layers_[apart_][layer]; }
  // Stores a layer's keys and values in their slots.
  void Store(int32_t layer, const float* k, const float* v);
  // Attention of everything in the plan, and the statistics that segments request.
  void Run(int32_t layer, const AttentionArgs& args);
  // For positions with three axes: their bytes (0 for other layouts); allocates them and rejects what three axes do not
  // support.
  static int64_t AxesBytes(const AttentionLayout& layout, int64_t max_rows, int64_t max_slots);
  Status MakeAxes(Ledger& ledger);
  // Run() with three axes: one pot and one group at a time, over a rotated copy of its keys.
  void RunAlongAxes(int32_t layer, const AttentionArgs& args);
  // Rotates the keys of heads [head, head + n_heads), which hold the same tokens, into rotated_ and points k_ptrs_
  // there.
  void RotateKeys(const BatchSegment& segment, size_t at, int32_t n_heads, int64_t n_slots);
  // The newest row's attention over the slots, for AttentionWatch.
  void Watch(int32_t pot_layer, const BatchSegment& segment, const AttentionSegment& view, const AttentionArgs& args);
  ColumnScoresArgs ScoresOf(int32_t layer, const AttentionArgs& args, const BatchSegment& segment,
                            const AttentionSegment* view, float* const* out, int64_t first_head = 0) const;
  // Adds the contents of `latest` to the pot's scores of a layer.
  void SplitByModality(int32_t layer, const BatchSegment& segment, ColumnScoresArgs scores);
  Status PlanPositions(std::span<const BatchSegment> segments);
  // The first slot that each row of a segment sees in a window layer of the pot.
  void FillFirstSlots(const BatchSegment& segment, int32_t layer, int32_t head, int32_t* first) const;
  // Angles of the rows' positions in a layer: cosines of a row, then as many sines max_rows_ rows further on.
  float* Angles(int table) const {
    return angles_.as<float>() + (table == 0 ? 0 : 2 * max_rows_ * (layout_.rope.n_rot / 2));
  }

  Backend* backend_ = nullptr;
  AttentionLayout layout_;
  // By whether windows have slots of their own: layout_.pot(), and layout_.pot_layer() of [n_layers].
  PotShape pots_[2];
  std::vector<int32_t> pot_layers_[2];
  std::vector<float> shares_;  // [n_layers]: 1 / number of layers that read the same keys
  int64_t max_rows_ = 0, max_slots_ = 0;
  RopeTable ropes_[2];  // of ordinary layers; of window layers if they have their own
  Reservation rope_bytes_;
  Buffer rope_copies_[2];   // the tables, for a device's kernels
  Buffer angles_;           // of each table [2, max_rows, n_rot/2]: cos then sin of the rows' positions
  HostBuffer first_slots_;  // [n_segments, n_kv_heads, rows of the segment] of the current layer, int32
  HostBuffer positions_;    // [max_rows] for positions(), or empty
  HostBuffer axes_;         // int32 [4, max_slots]: coordinates, and scratch to compute them
  HostBuffer axis_angles_;  // [2, max_slots, n_rot/2] of a group's slots
  HostBuffer rotated_;      // [n_kv_heads, max_slots, head_dim] F32: keys of the current group
  HostBuffer decoded_;      // [n_kv_heads, kDecodeRows, head_dim]
  Buffer scratch_;          // of the attention and statistics kernels, which run in turn
  // The current plan.
  bool apart_ = false;  // the pots' windows have slots of their own
  std::vector<BatchSegment> segments_;
  const std::function<void()>* between_ = nullptr;
  std::vector<const uint8_t*> k_ptrs_, v_ptrs_;  // [n_segments, n_kv_heads], of the current layer
  std::vector<int32_t> n_slots_;                 // same shape
  std::vector<const int32_t*> first_ptrs_;       // same shape
  std::vector<const int32_t*> read_ptrs_;        // same shape; of segments that read only part of their slots
  std::vector<int32_t> n_read_;                  // same shape
  std::vector<AttentionSegment> views_;          // [n_segments]
  std::vector<bool> two_way_;                    // [n_segments], in layers where pictures are
  std::vector<StoreSlotsArgs> stores_;
  std::vector<ColumnScoresArgs> scores_;  // of the segments that vote
  std::vector<float*> score_ptrs_;        // [n_kv_heads] of each
};

}  // namespace weir
