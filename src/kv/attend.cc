// SPDX-License-Identifier: Apache-2.0
#include "kv/attend.h"

#include <algorithm>
#include <limits>

namespace weir {

namespace {

int64_t AngleBytes(const AttentionLayout& layout, int64_t max_rows) {
  const int64_t n_pairs = layout.rope.n_rot / 2 + (layout.window_rope ? layout.window_rope->n_rot / 2 : 0);
  return 2 * max_rows * n_pairs * 4;
}

int64_t FirstSlotBytes(const AttentionLayout& layout, int64_t max_rows) {
  return layout.has_windows() ? max_rows * layout.n_kv_heads * 4 : 0;
}

int64_t ScratchBytes(const Backend& backend, const AttentionLayout& layout, int64_t max_rows, int64_t max_slots,
                     bool statistics) {
  int64_t most = 0;
  for (int32_t layer = 0; layer < (layout.layers.empty() ? 1 : layout.n_layers); ++layer) {
    const LayerHeads heads = layout.heads_of(layer);
    const AttentionShape shape = {heads.n_heads, heads.n_kv_heads, heads.head_dim, max_rows, max_slots};
    most = std::max(most,
                    statistics ? backend.AttentionWithScoresScratchBytes(shape) : backend.AttentionScratchBytes(shape));
  }
  return most;
}

int64_t PositionBytes(const AttentionLayout& layout, int64_t max_rows) {
  return layout.n_learned_positions > 0 || layout.shows_positions ? max_rows * 4 : 0;
}

// Whether no group of a layer holds a row of a picture: coordinates are then the same on all axes, and a slot's its
// number, which the attention of one axis computes without a copy of the keys.
bool OnlyText(std::span<const BatchSegment> segments, int32_t layer) {
  for (const BatchSegment& segment : segments) {
    const PotShape& shape = segment.pot->shape();
    const int32_t step = shape.granularity == Granularity::kPerHead ? 1 : shape.n_kv_heads;
    for (int32_t head = 0; head < shape.n_kv_heads; head += step) {
      for (const SlotMeta& slot : segment.pot->meta(shape.group_of(layer, head))) {
        if (slot.modality != Modality::kText) return false;
      }
    }
  }
  return true;
}

// Whether all rows of a segment are a picture's; those of one call are alike.
bool IsPicture(const BatchSegment& segment) {
  return segment.tokens != nullptr && std::all_of(segment.tokens, segment.tokens + segment.n_rows,
                                                  [](const SlotMeta& row) { return row.modality != Modality::kText; });
}

}  // namespace

void AttentionLayout::SetLayers(std::vector<LayerHeads> all) {
  layers = std::move(all);
  n_layers = static_cast<int32_t>(layers.size());
  n_heads = n_kv_heads = head_dim = 0;
  for (const LayerHeads& layer : layers) {
    n_heads = std::max(n_heads, layer.n_heads);
    n_kv_heads = std::max(n_kv_heads, layer.n_kv_heads);
    head_dim = std::max(head_dim, layer.head_dim);
  }
}

bool AttentionLayout::can_hold_windows_apart() const {
  int32_t n_windows = 0, n_others = 0;
  for (int32_t layer = 0; layer < n_layers; ++layer) {
    if (stores(layer)) ++(is_window(layer) ? n_windows : n_others);
  }
  return window > 0 && n_windows > 0 && n_others > 0 && !has_axes();
}

int32_t AttentionLayout::pot_layer(int32_t layer, bool apart) const {
  const int32_t from = stores(layer) ? layer : layers[layer].kv_layer;
  int32_t n_before = 0;
  for (int32_t l = 0; l < from; ++l) n_before += stores(l) && (!apart || is_window(l) == is_window(from));
  return n_before;
}

PotShape AttentionLayout::pot(bool apart) const {
  std::vector<LayerShape> own, windows;
  for (int32_t layer = 0; layer < n_layers; ++layer) {
    const LayerHeads heads = heads_of(layer);
    if (stores(layer)) (apart && is_window(layer) ? windows : own).push_back({heads.n_kv_heads, heads.head_dim});
  }
  PotShape out;
  out.values_in_keys = values_in_keys;
  out.SetLayers(std::move(own));
  if (apart) out.windows.window = window;
  out.windows.layers = std::move(windows);
  return out;
}

int64_t Attender::MetaBytes(const Backend& backend, const AttentionLayout& layout, int64_t max_slots) {
  const int64_t bytes = RopeTable::Bytes(layout.rope, max_slots);
  const int64_t window_bytes = layout.window_rope ? RopeTable::Bytes(*layout.window_rope, max_slots) : 0;
  return PageRound(bytes + window_bytes) + backend.UploadBytes(bytes) + backend.UploadBytes(window_bytes);
}

int64_t Attender::WorkspaceBytes(const Backend& backend, const AttentionLayout& layout, int64_t max_rows,
                                 int64_t max_slots, bool statistics) {
  return PageRound(AngleBytes(layout, max_rows)) + PageRound(FirstSlotBytes(layout, max_rows)) +
         PageRound(PositionBytes(layout, max_rows)) + AxesBytes(layout, max_rows, max_slots) +
         PageRound(ScratchBytes(backend, layout, max_rows, max_slots, statistics));
}

Result<std::unique_ptr<Attender>> Attender::Make(Backend& backend, const AttentionLayout& layout, int64_t max_rows,
                                                 int64_t max_slots, int64_t n_context, bool statistics,
                                                 Ledger& ledger) {
  auto out = std::make_unique<Attender>();
  out->backend_ = &backend;
  out->layout_ = layout;
  for (const bool apart : {false, true}) {
    out->pots_[apart] = layout.pot(apart);
    for (int32_t layer = 0; layer < layout.n_layers; ++layer) {
      out->pot_layers_[apart].push_back(layout.pot_layer(layer, apart));
    }
  }
  for (const int32_t layer : out->pot_layers_[0]) {
    out->shares_.push_back(1.0f / static_cast<float>(std::ranges::count(out->pot_layers_[0], layer)));
  }
  out->max_rows_ = max_rows;
  out->max_slots_ = max_slots;
  int64_t rope_bytes =
      MetaBytes(backend, layout, max_slots) - backend.UploadBytes(RopeTable::Bytes(layout.rope, max_slots));
  if (layout.window_rope) rope_bytes -= backend.UploadBytes(RopeTable::Bytes(*layout.window_rope, max_slots));
  WEIR_ASSIGN_OR_RETURN(out->rope_bytes_, ledger.Reserve(MemTag::kMeta, rope_bytes));
  WEIR_ASSIGN_OR_RETURN(out->ropes_[0], RopeTable::Make(layout.rope, max_slots, n_context));
  if (layout.window_rope) {
    WEIR_ASSIGN_OR_RETURN(out->ropes_[1], RopeTable::Make(*layout.window_rope, max_slots, n_context));
  }
  WEIR_RETURN_IF_ERROR(out->MakeAxes(ledger));
  for (int table = 0; table < 2 && !backend.on_host(); ++table) {
    const std::vector<uint8_t> packed = out->ropes_[table].Pack();
    WEIR_ASSIGN_OR_RETURN(out->rope_copies_[table],
                          backend.Upload(ledger, MemTag::kMeta, packed.data(), std::ssize(packed)));
    out->ropes_[table].device = out->rope_copies_[table].data();
  }
  WEIR_ASSIGN_OR_RETURN(out->angles_,
                        backend.Allocate(ledger, MemTag::kWorkspace, AngleBytes(layout, max_rows), Access::kDevice));
  WEIR_ASSIGN_OR_RETURN(out->first_slots_,
                        HostBuffer::Allocate(ledger, MemTag::kWorkspace, FirstSlotBytes(layout, max_rows)));
  WEIR_ASSIGN_OR_RETURN(out->positions_,
                        HostBuffer::Allocate(ledger, MemTag::kWorkspace, PositionBytes(layout, max_rows)));
  WEIR_ASSIGN_OR_RETURN(
      out->scratch_, backend.Allocate(ledger, MemTag::kWorkspace,
                                      ScratchBytes(backend, layout, max_rows, max_slots, statistics), Access::kDevice));
  return out;
}

Status CheckLearnedPositions(const AttentionLayout& layout, Positions positions, int64_t end) {
  if (layout.n_learned_positions == 0 || end <= layout.n_learned_positions) return Status();
  return OverBudget(
      "this model has learned {} positions, and token {} of {} would need another; use a policy whose "
      "positions are slots, in a pot of at most so many",
      layout.n_learned_positions, end, positions == Positions::kAbs ? "the stream" : "a pot");
}

Status Attender::Plan(std::span<const BatchSegment> segments) {
  const PotShape& first = segments.front().pot->shape();
  apart_ = first.windows.n_slots > 0;
  const PotShape& own = pots_[apart_];
  int64_t n_rows = 0;
  for (const BatchSegment& segment : segments) {
    const PotShape& shape = segment.pot->shape();
    if (shape.k_type != first.k_type || shape.v_type != first.v_type || shape.positions != first.positions ||
        (shape.windows.n_slots > 0) != apart_) {
      return InvalidArgument("the pots of one batch must share KV types, position policy and kind of windows");
    }
    if (shape.values_in_keys != own.values_in_keys || shape.n_layers != own.n_layers ||
        shape.n_kv_heads != own.n_kv_heads || shape.head_dim != own.head_dim || shape.layers != own.layers ||
        shape.windows.layers != own.windows.layers ||
        std::max<int64_t>(shape.max_head_slots(), shape.windows.n_slots) > max_slots_) {
      return InvalidArgument("a pot of {} layers x {} heads x {} slots does not fit this model's attention",
                             shape.n_layers, shape.n_kv_heads, shape.n_slots);
    }
    n_rows += segment.n_rows;
  }
  if (n_rows > max_rows_) {
    return InvalidArgument("a batch of {} rows exceeds the {} planned for", n_rows, max_rows_);
  }

  if (positions() != nullptr) WEIR_RETURN_IF_ERROR(PlanPositions(segments));

  segments_.assign(segments.begin(), segments.end());
  const size_t n_views = segments_.size() * layout_.n_kv_heads;
  k_ptrs_.resize(n_views);
  v_ptrs_.resize(n_views);
  n_slots_.resize(n_views);
  first_ptrs_.resize(n_views);
  read_ptrs_.resize(n_views);
  n_read_.resize(n_views);
  views_.resize(segments_.size());
  two_way_.resize(segments_.size());
  for (size_t i = 0; i < segments_.size(); ++i) {
    const size_t at = i * layout_.n_kv_heads;
    views_[i] = {segments_[i].first_row, segments_[i].n_rows, &k_ptrs_[at], &v_ptrs_[at], &n_slots_[at]};
    two_way_[i] = layout_.two_way_pictures && IsPicture(segments_[i]);
  }
  if (first.positions == Positions::kAbs && angles_.bytes() > 0) {
    std::vector<int64_t> pos;
    for (const BatchSegment& segment : segments_) {
      if (layout_.has_axes()) {
        const int64_t half = layout_.rope.n_rot / 2;
        int32_t* const at = axes_.as<int32_t>();
        float* cos = Angles(0) + segment.first_row * half;
        StreamPositions({segment.tokens, static_cast<size_t>(segment.n_rows)}, segment.pos_shift, at, segment.n_rows,
                        segment.video_time);
        AxisAngles(ropes_[0], layout_.axis_pairs, at, segment.n_rows, segment.n_rows, cos, cos + max_rows_ * half);
        continue;
      }
      pos.resize(static_cast<size_t>(segment.n_rows));
      for (int64_t i = 0; i < segment.n_rows; ++i) {
        pos[i] = segment.has_slots ? segment.tokens[i].seq : segment.first_seq + i;
      }
      for (int table = 0; table < (layout_.window_rope ? 2 : 1); ++table) {
        const int64_t half = ropes_[table].n_rot / 2;
        float* cos = Angles(table) + segment.first_row * half;
        backend_->RopeAngles(ropes_[table], pos, cos, cos + max_rows_ * half);
      }
    }
  }
  return Status();
}

Status Attender::PlanPositions(std::span<const BatchSegment> segments) {
  for (const BatchSegment& segment : segments) {
    const PotShape& shape = segment.pot->shape();
    const bool absolute = shape.positions == Positions::kAbs;
    const int64_t first = absolute ? segment.first_seq : shape.n_slots - segment.pot->n_free() + segment.n_before;
    WEIR_RETURN_IF_ERROR(CheckLearnedPositions(layout_, shape.positions, first + segment.n_rows));
    int32_t* positions = positions_.as<int32_t>() + segment.first_row;
    for (int64_t i = 0; i < segment.n_rows; ++i) {
      positions[i] = static_cast<int32_t>(std::min<int64_t>(first + i, std::numeric_limits<int32_t>::max()));
    }
  }
  return Status();
}

void Attender::FillFirstSlots(const BatchSegment& segment, int32_t layer, int32_t head, int32_t* first) const {
  const Pot& pot = PotOf(segment, layer);
  const PotShape& shape = pot.shape();
  const std::span<const SlotMeta> meta = pot.meta(shape.group_of(PotLayer(layer), head));
  const int64_t own = std::ssize(meta) - segment.n_after - segment.n_rows;  // slot of the first row
  int64_t slot = 0;
  for (int64_t i = 0; i < segment.n_rows; ++i) {
    if (shape.positions == Positions::kAbs) {
      // A slot's position is its number in the stream.
      const int64_t oldest = segment.first_seq + i - layout_.window + 1;
      const auto at = std::lower_bound(meta.begin() + slot, meta.begin() + own + i, oldest,
                                       [](const SlotMeta& m, int64_t seq) { return m.seq < seq; });
      slot = at - meta.begin();
    } else {
      slot = std::max<int64_t>(0, own + i - layout_.window + 1);
    }
    first[i] = static_cast<int32_t>(slot);
  }
}

void Attender::Store(int32_t layer, const float* k, const float* v) {
  const PotShape& shape = PotOf(segments_.front(), layer).shape();
  const LayerHeads heads = layout_.heads_of(layer);
  const int32_t pot_layer = PotLayer(layer);
  const int table = layout_.is_window(layer) && layout_.window_rope ? 1 : 0;
  const RopeTable& rope = ropes_[table];
  const int64_t half = rope.n_rot / 2;
  const bool rotated = shape.positions == Positions::kAbs && layout_.rotates(layer);
  const float* const cos = Angles(table);
  const float* const sin = cos + max_rows_ * half;
  const int64_t kv_stride = static_cast<int64_t>(heads.n_kv_heads) * heads.head_dim;
  stores_.clear();
  for (const BatchSegment& s : segments_) {
    const Pot& pot = PotOf(s, layer);
    for (int32_t head = 0; head < heads.n_kv_heads; ++head) {
      StoreSlotsArgs store;
      store.x = k + s.first_row * kv_stride + static_cast<int64_t>(head) * heads.head_dim;
      store.x_stride = kv_stride;
      store.n_rows = s.n_rows;
      store.head_dim = heads.head_dim;
      store.type = shape.k_type;
      store.slots = pot.keys(pot_layer, head);
      store.first_slot = pot.n_used(pot_layer, head) - s.n_after - s.n_rows;
      if (rotated) {
        store.rope = &rope;
        store.cos = cos + s.first_row * half;
        store.sin = sin + s.first_row * half;
      }
      stores_.push_back(store);
      if (shape.values_in_keys) continue;
      store.x = v + s.first_row * kv_stride + static_cast<int64_t>(head) * heads.head_dim;
      store.type = shape.v_type;
      store.slots = pot.values(pot_layer, head);
      store.rope = nullptr;
      stores_.push_back(store);
    }
  }
  backend_->StoreSlots(stores_);
}

void Attender::Attend(int32_t layer, const float* q, const float* k, const float* v, float* out, int64_t first_row) {
  if (between_ != nullptr) (*between_)();
  const PotShape& shape = PotOf(segments_.front(), layer).shape();
  const LayerHeads heads = layout_.heads_of(layer);
  const int32_t pot_layer = PotLayer(layer);
  const bool window = layout_.is_window(layer);
  const int table = window && layout_.window_rope ? 1 : 0;
  const RopeTable& rope = ropes_[table];
  const int64_t half = rope.n_rot / 2;
  const bool rotates = layout_.rotates(layer);
  const bool rotated = shape.positions == Positions::kAbs && rotates;
  const float* cos = Angles(table);
  const float* sin = cos + max_rows_ * half;

  if (layout_.stores(layer)) Store(layer, k, v);
  for (size_t i = 0; i < segments_.size(); ++i) {
    const BatchSegment& s = segments_[i];
    const Pot& pot = PotOf(s, layer);
    const bool reads_all = s.reads == nullptr || in_windows(layer);
    const size_t first = i * layout_.n_kv_heads;
    views_[i].n_rows = s.n_rows - first_row;
    views_[i].two_way = two_way_[i] && (window || !layout_.two_way_windows_only);
    views_[i].selected = reads_all ? nullptr : &read_ptrs_[first];
    views_[i].n_selected = reads_all ? nullptr : &n_read_[first];
    views_[i].first_slot = window ? &first_ptrs_[first] : nullptr;
    for (int32_t head = 0; head < heads.n_kv_heads; ++head) {
      const size_t at = first + head;
      k_ptrs_[at] = pot.keys(pot_layer, head);
      v_ptrs_[at] = pot.values(pot_layer, head);
      n_slots_[at] = pot.n_used(pot_layer, head) - static_cast<int32_t>(s.n_after);
      if (!reads_all) {
        const std::vector<int32_t>& read = s.reads[shape.group_of(pot_layer, head)];
        read_ptrs_[at] = read.data();
        n_read_[at] = static_cast<int32_t>(read.size());
      }
      if (!window) continue;
      int32_t* first_slots = first_slots_.as<int32_t>() + s.first_row * layout_.n_kv_heads + head * s.n_rows;
      FillFirstSlots(s, layer, head, first_slots);
      first_ptrs_[at] = first_slots + first_row;
    }
  }

  AttentionArgs args;
  args.n_heads = heads.n_heads;
  args.n_kv_heads = heads.n_kv_heads;
  args.head_dim = heads.head_dim;
  args.scale = layout_.scale;
  args.softcap = layout_.softcap;
  args.sinks = layout_.sinks.empty() ? nullptr : layout_.sinks[layer];
  args.q = q;
  args.q_stride = static_cast<int64_t>(heads.n_heads) * heads.head_dim;
  args.out = out;
  args.out_stride = args.q_stride;
  args.k_type = shape.k_type;
  args.v_type = shape.v_type;
  args.rope = rotates ? &rope : nullptr;
  args.keys_rotated = rotated;
  args.row_cos = rotated ? cos + first_row * half : nullptr;
  args.row_sin = rotated ? sin + first_row * half : nullptr;
  args.bf16 = layout_.bf16 && shape.k_type != DType::kF32 && shape.v_type != DType::kF32;
  args.segments = views_;
  args.scratch = scratch_.data();

  if (layout_.has_axes() && !rotated && !OnlyText(segments_, layer)) return RunAlongAxes(layer, args);
  Run(layer, args);
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].watch == nullptr || !layout_.stores(layer) || in_windows(layer)) continue;
    Watch(pot_layer, segments_[i], views_[i], args);
  }
}

ColumnScoresArgs Attender::ScoresOf(int32_t layer, const AttentionArgs& args, const BatchSegment& segment,
                                    const AttentionSegment* view, float* const* out, int64_t first_head) const {
  const EvidenceCall* evidence = segment.evidence;
  ColumnScoresArgs scores;
  scores.attention = args;
  scores.attention.segments = {view, 1};
  scores.row_begin = evidence->row_begin;
  scores.row_end = evidence->row_end;
  scores.rows = evidence->rows;
  scores.heads = evidence->heads;
  scores.all_heads = segment.pot->shape().granularity == Granularity::kPerLayer;
  scores.out = evidence->latest == nullptr ? out : &evidence->latest;
  // Layers that read the same keys vote together.
  scores.accumulate = (evidence->accumulate || !layout_.stores(layer)) && evidence->latest == nullptr;
  if (evidence->rows == RowReduce::kSum) scores.weight = shares_[layer];
  scores.noise = evidence->noise;
  scores.noise.seed = NoiseMix(NoiseMix(evidence->noise.seed) + static_cast<uint64_t>(layer));
  scores.noise.first_row = segment.first_seq;
  scores.noise.first_head = first_head;
  scores.scratch = scratch_.data();
  return scores;
}

void Attender::Run(int32_t layer, const AttentionArgs& args) {
  size_t n_voting = 0;
  for (const BatchSegment& segment : segments_) n_voting += segment.evidence != nullptr;
  // Nobody chooses what windows with slots of their own hold.
  if (n_voting == 0 || in_windows(layer)) return backend_->Attention(args);
  scores_.clear();
  score_ptrs_.clear();
  score_ptrs_.reserve(segments_.size() * layout_.n_kv_heads);  // pointers into it stay valid
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].evidence == nullptr) continue;
    const Pot& pot = *segments_[i].pot;
    float* const* out_ptrs = score_ptrs_.data() + score_ptrs_.size();
    for (int32_t head = 0; head < args.n_kv_heads; ++head) {
      score_ptrs_.push_back(pot.scores(pot.shape().group_of(PotLayer(layer), head)).data());
    }
    scores_.push_back(ScoresOf(layer, args, segments_[i], &views_[i], out_ptrs));
  }
  backend_->AttentionWithScores(args, scores_);
  size_t n_done = 0;
  for (const BatchSegment& segment : segments_) {
    if (segment.evidence == nullptr) continue;
    if (segment.evidence->latest != nullptr) SplitByModality(layer, segment, scores_[n_done]);
    ++n_done;
  }
}

void Attender::Watch(int32_t pot_layer, const BatchSegment& segment, const AttentionSegment& view,
                     const AttentionArgs& args) {
  float* out = segment.watch->out + pot_layer * segment.watch->stride;
  ColumnScoresArgs scores;
  scores.attention = args;
  scores.attention.segments = {&view, 1};
  scores.row_begin = segment.n_rows - 1;
  scores.row_end = segment.n_rows;
  scores.all_heads = true;
  scores.out = &out;
  scores.scratch = scratch_.data();
  backend_->ColumnScores(scores);
}

void Attender::SplitByModality(int32_t layer, const BatchSegment& segment, ColumnScoresArgs scores) {
  const int32_t group = segment.pot->shape().group_of(PotLayer(layer), 0);
  std::span<const SlotMeta> slots = segment.pot->meta(group);
  slots = slots.first(slots.size() - static_cast<size_t>(segment.n_after));  // that these rows see
  const std::span<float> kept = segment.pot->scores(group);
  const float* latest = segment.evidence->latest;
  backend_->Synchronise();
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slots[s].modality == Modality::kText) kept[s] += latest[s];
  }
  if (scores.row_end - scores.row_begin > 1) {
    scores.row_begin = scores.row_end - 1;
    backend_->ColumnScores(scores);
    backend_->Synchronise();
  }
  for (size_t s = 0; s < slots.size(); ++s) {
    if (slots[s].modality != Modality::kText) kept[s] = latest[s] + (layout_.stores(layer) ? 0 : kept[s]);
  }
}

}  // namespace weir
