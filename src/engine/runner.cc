// SPDX-License-Identifier: Apache-2.0
#include "engine/runner.h"

#include <algorithm>

namespace weir {
namespace {

int64_t HeadScratchBytes(const Model& model, const Backend& backend, const RunnerShape& shape) {
  const int64_t n_embd = model.config().n_embd;
  return std::max({backend.MatMulScratchBytes(shape.max_rows, n_embd),
                   backend.TopLogitsScratchBytes(model.config().n_vocab),
                   shape.nll ? backend.NllScratchBytes(shape.max_rows, n_embd) : 0});
}

// Ends a pass on every way out.
class Pass {
 public:
  Pass(Backend& backend, int64_t n_rows) : backend_(backend) { backend_.BeginPass(n_rows); }
  ~Pass() { backend_.EndPass(); }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

 private:
  Backend& backend_;
};

// Whether the rows took their slots in an earlier part.
bool HasSlots(const BatchItem& item) { return item.part.begin > 0; }

}  // namespace

int64_t Runner::MetaBytes(const Model& model, const Backend& backend, const RunnerShape& shape) {
  return Attender::MetaBytes(backend, model.config().attention, shape.max_slots);
}

int64_t Runner::WorkspaceBytes(const Model& model, const Backend& backend, const RunnerShape& shape) {
  return Attender::WorkspaceBytes(backend, model.config().attention, shape.max_rows, shape.max_slots,
                                  shape.statistics) +
         PageRound(shape.max_rows * 4) + PageRound(shape.max_rows * model.config().n_embd * 4) +
         PageRound(model.WorkspaceBytes(shape.max_rows)) + PageRound(model.HostWorkspaceBytes(shape.max_rows)) +
         PageRound(HeadScratchBytes(model, backend, shape));
}

Result<std::unique_ptr<Runner>> Runner::Make(Model& model, Backend& backend, const RunnerShape& shape, Ledger& ledger) {
  auto out = std::make_unique<Runner>();
  out->model_ = &model;
  out->backend_ = &backend;
  out->shape_ = shape;
  const auto allocate = [&](int64_t bytes) {
    return backend.Allocate(ledger, MemTag::kWorkspace, bytes, Access::kDevice);
  };
  WEIR_ASSIGN_OR_RETURN(out->attender_, Attender::Make(backend, model.config().attention, shape.max_rows,
                                                       shape.max_slots, shape.n_context, shape.statistics, ledger));
  WEIR_ASSIGN_OR_RETURN(out->tokens_, HostBuffer::Allocate(ledger, MemTag::kWorkspace, shape.max_rows * 4));
  WEIR_ASSIGN_OR_RETURN(out->hidden_, allocate(shape.max_rows * model.config().n_embd * 4));
  WEIR_ASSIGN_OR_RETURN(out->workspace_, allocate(model.WorkspaceBytes(shape.max_rows)));
  WEIR_ASSIGN_OR_RETURN(out->host_workspace_,
                        HostBuffer::Allocate(ledger, MemTag::kWorkspace, model.HostWorkspaceBytes(shape.max_rows)));
  WEIR_ASSIGN_OR_RETURN(out->head_scratch_, allocate(HeadScratchBytes(model, backend, shape)));
  return out;
}

Result<const float*> Runner::Forward(std::span<const BatchItem> items, const TensorObserver* observer) {
  if (items.empty()) return InvalidArgument("a batch needs at least one item");
  // The code below writes scores and lists that the previous pass may still be reading.
  backend_->Synchronise();
  WEIR_RETURN_IF_ERROR(backend_->status());
  segments_.clear();
  int64_t n_rows = 0;
  int32_t* ids = tokens_.as<int32_t>();
  for (const BatchItem& item : items) {
    const int64_t n = static_cast<int64_t>(item.tokens.size());
    if (n == 0) return InvalidArgument("a batch item has no tokens");
    if (item.embeddings != nullptr && items.size() > 1) return InvalidArgument("embeddings are a batch of their own");
    if (!item.part.all() && items.size() > 1) return InvalidArgument("a part of the layers is a batch of its own");
    for (const BatchSegment& earlier : segments_) {
      if (earlier.pot == item.pot) return InvalidArgument("a pot stands twice in one batch");
    }
    if (n_rows + n > shape_.max_rows) {
      return InvalidArgument("a batch of more than {} rows", shape_.max_rows);
    }
    if (!HasSlots(item) && n > item.pot->n_free()) {
      return OverBudget("a pot of {} slots has {} free, {} tokens are coming", item.pot->shape().n_slots,
                        item.pot->n_free(), n);
    }
    for (int64_t i = 0; i < n && item.embeddings == nullptr && !HasSlots(item); ++i) {
      const int32_t id = item.tokens[i].token_id;
      if (id < 0 || id >= model_->config().n_vocab) {
        return InvalidArgument("token {} is outside the vocabulary of {}", id, model_->config().n_vocab);
      }
      ids[n_rows + i] = id;
    }
    const int64_t n_here = item.one_by_one ? 1 : n;
    for (int64_t i = 0; i < n; i += n_here) {
      segments_.push_back({.pot = item.pot,
                           .first_row = n_rows + i,
                           .n_rows = n_here,
                           .first_seq = item.tokens[static_cast<size_t>(i)].seq,
                           .evidence = item.evidence,
                           .reads = item.reads,
                           .watch = item.watch,
                           .tokens = &item.tokens[static_cast<size_t>(i)],
                           .pos_shift = item.pos_shift,
                           .video_time = item.video_time,
                           .n_before = i,
                           .n_after = item.part.n_after + n - i - n_here,
                           .has_slots = HasSlots(item)});
    }
    n_rows += n;
  }
  const LayerPart& part = items.front().part;
  for (const BatchItem& item : items) {
    if (!HasSlots(item)) WEIR_RETURN_IF_ERROR(item.pot->MakeWindowRoom(std::ssize(item.tokens)));
  }
  const Pass pass(*backend_, n_rows);
  WEIR_RETURN_IF_ERROR(attender_->Plan(segments_));
  // A device is given its passes whole.
  attender_->CallBetween(items.size() == 1 && backend_->on_host() ? items.front().between : nullptr);
  for (const BatchItem& item : items) {
    if (!HasSlots(item)) WEIR_RETURN_IF_ERROR(item.pot->BeginAppend(item.tokens));
  }

  ForwardArgs args;
  args.attender = attender_.get();
  args.embeddings = items.front().embeddings;
  args.n_rows = n_rows;
  args.first_layer = part.begin;
  args.end_layer = part.end;
  args.hidden = hidden_.as<float>();
  if (part.begin > 0) {
    PickRows(part, args.hidden);
  } else if (args.embeddings == nullptr) {
    args.tokens = ids;
  }
  args.workspace = workspace_.data();
  args.host_workspace = host_workspace_.data();
  args.observer = observer;
  // An observer sees every row.
  if (observer == nullptr && items.size() == 1 && items.front().last_hidden_only && part.end == 0) {
    args.first_hidden = n_rows - 1;
  }
  model_->Forward(args);
  return static_cast<const float*>(args.hidden);
}

void Runner::PickRows(const LayerPart& part, float* out) {
  const int64_t n_embd = model_->config().n_embd;
  for (size_t at = 0, end; at < part.picked.size(); at = end) {
    // Rows that are side by side are copied at once.
    for (end = at + 1; end < part.picked.size() && part.picked[end] == part.picked[end - 1] + 1;) ++end;
    backend_->Copy(out + static_cast<int64_t>(at) * n_embd, part.stream + part.picked[at] * n_embd,
                   static_cast<int64_t>(end - at) * n_embd * 4);
  }
}

void Runner::Logits(const float* hidden, int64_t n_rows, float* out) {
  MatMulOut head;
  head.w = &model_->head();
  head.y = out;
  head.y_stride = model_->config().n_vocab;
  head.bias = model_->head_bias();
  MatMulArgs args;
  args.x = hidden;
  args.x_stride = model_->config().n_embd;
  args.n_rows = n_rows;
  args.n_in = model_->config().n_embd;
  args.outs = {&head, 1};
  args.scratch = head_scratch_.data();
  backend_->MatMul(args);
  const float cap = model_->config().logit_softcap;
  if (cap > 0) backend_->SoftCap({cap, out, out, n_rows * model_->config().n_vocab});
}

void Runner::TopLogits(const float* logits, std::span<int32_t> ids, std::span<float> values) {
  backend_->TopLogits({.logits = logits,
                       .n = model_->config().n_vocab,
                       .k = std::ssize(ids),
                       .ids = ids.data(),
                       .values = values.data(),
                       .scratch = head_scratch_.data()});
}

void Runner::HeadNll(const float* hidden, const int32_t* target, int64_t n_rows, Normaliser normaliser, float* nll) {
  NllArgs args;
  args.x = hidden;
  args.n_rows = n_rows;
  args.n_in = model_->config().n_embd;
  args.head = &model_->head();
  args.bias = model_->head_bias();
  args.softcap = model_->config().logit_softcap;
  args.target = target;
  args.normaliser = normaliser;
  args.nll = nll;
  args.scratch = head_scratch_.data();
  backend_->HeadNll(args);
}

}  // namespace weir
