// SPDX-License-Identifier: Apache-2.0
#include "engine/session/late_rows.h"

#include <algorithm>
#include <numeric>

namespace weir {

bool LateRows::Suits(const Model& model, const PolicyNeeds& needs, const SessionOptions& options) {
  const ModelConfig& config = model.config();
  const AttentionLayout& layout = config.attention;
  const int32_t layers = needs.filter_layers;
  return layers > 0 && layers < config.n_layers && model.CanPause(layers) && needs.evicts &&
         needs.granularity == Granularity::kPerLayer && options.on_overflow == OnOverflow::kEvict &&
         layout.layers.empty() && layout.n_layers == config.n_layers && layout.n_state == 0 && !layout.has_axes() &&
         !layout.has_windows() && !layout.two_way_pictures;
}

void LateRows::LayOut(const Model& model, const SessionPlan& plan, BufferSpace* space) {
  most_ = plan.late_rows;
  if (most_ == 0) return;
  stream_ = space->Floats(MemTag::kWorkspace, most_ * model.config().n_embd, Access::kDevice);
  space->Reserve(MemTag::kMeta,
                 most_ * static_cast<int64_t>(sizeof(int32_t)) + static_cast<int64_t>(kMostChunks * sizeof(Waiting)));
}

void LateRows::Use(SessionCore* core, SlotSelector* selector, Prediction* prediction) {
  core_ = core;
  selector_ = selector;
  prediction_ = prediction;
  if (most_ == 0) return;
  chunks_.reserve(kMostChunks);
  picked_.reserve(static_cast<size_t>(most_));
}

bool LateRows::Takes(const Chunk& call) const {
  const bool of_prompt = !call.generated && !call.excerpt && !call.observed;
  return most_ > 0 && of_prompt && core_->listener == nullptr && (n_ > 0 || call.embeddings != nullptr);
}

Result<const float*> LateRows::Read(const BatchItem& item) {
  BatchItem first = item;
  first.part.end = core_->needs.filter_layers;
  WEIR_ASSIGN_OR_RETURN(const float* stream, core_->runner->Forward({&first, 1}));
  const int64_t n_embd = core_->model->config().n_embd, n_rows = std::ssize(item.tokens);
  core_->backend->Copy(stream_ + n_ * n_embd, stream, n_rows * n_embd * 4);
  const bool votes = item.evidence != nullptr;
  if (!votes && !chunks_.empty() && !chunks_.back().votes) {
    chunks_.back().end += n_rows;
  } else {
    chunks_.push_back(
        {.begin = n_, .end = n_ + n_rows, .votes = votes, .call = votes ? *item.evidence : EvidenceCall{}});
  }
  n_ += n_rows;
  return stream;
}

size_t LateRows::NextPass(size_t at, EvidenceCall* call) const {
  // A pass has one vote, of its last rows: it ends where those end that vote.
  const auto place_of = [&](int64_t row) {
    return static_cast<size_t>(std::ranges::lower_bound(picked_, row) - picked_.begin());
  };
  size_t end = std::min(picked_.size(), at + static_cast<size_t>(core_->plan.chunk_rows));
  *call = {};
  for (const Waiting& chunk : chunks_) {
    if (!chunk.votes || chunk.end <= picked_[at] || chunk.begin > picked_[end - 1]) continue;
    const size_t chunk_end = place_of(chunk.end);
    if (chunk_end == place_of(chunk.begin)) continue;  // none of it goes on
    end = std::min(end, chunk_end);
    const size_t first = std::clamp(place_of(chunk.begin + chunk.call.row_begin), at, end),
                 last = std::clamp(place_of(chunk.begin + chunk.call.row_end), at, end);
    *call = chunk.call;
    call->row_begin = static_cast<int64_t>(first - at);
    call->row_end = static_cast<int64_t>(last - at);
    break;
  }
  return end - at;
}

Status LateRows::Finish(bool prompt_ended, const AttentionWatch* watch) {
  if (n_ == 0) return Status();
  SessionCore& core = *core_;
  picked_.resize(static_cast<size_t>(n_));
  std::iota(picked_.begin(), picked_.end(), 0);
  // Rows that go on must do so, whatever becomes of the trace.
  const Status chosen = prompt_ended ? selector_->DropRows(&picked_) : Status();
  // Their slots are the newest ones. The list stays where it is until something is selected.
  const int32_t layer = core.needs.filter_layers;
  const std::span<const SlotMeta> rows = core.pot->meta(layer).last(picked_.size());
  Status status;
  for (size_t at = 0; at < picked_.size() && status.ok();) {
    EvidenceCall call;
    const size_t n_here = NextPass(at, &call);
    const bool last = at + n_here == picked_.size();
    BatchItem item = {.pot = core.pot.get(), .tokens = rows.subspan(at, n_here), .last_hidden_only = true};
    if (call.row_begin < call.row_end) item.evidence = &call;
    if (last) item.watch = watch;
    item.part = {.begin = layer,
                 .stream = stream_,
                 .picked = std::span(picked_).subspan(at, n_here),
                 .n_after = static_cast<int64_t>(picked_.size() - at - n_here)};
    const auto hidden = core.runner->Forward({&item, 1});
    status = hidden.status();
    at += n_here;
    if (status.ok() && last) {
      prediction_->Read(*hidden + static_cast<int64_t>(n_here - 1) * core.model->config().n_embd);
    }
  }
  core.stream.n_slots_read = 0;
  for (int32_t group = 0; group < core.pot->shape().n_groups(); ++group) {
    core.stream.n_slots_read += std::ssize(core.pot->meta(group));
  }
  Drop();
  return status.ok() ? chosen : status;
}

}  // namespace weir
