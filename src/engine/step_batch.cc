// SPDX-License-Identifier: Apache-2.0
#include "engine/step_batch.h"

#include <algorithm>
#include <vector>

namespace weir {
namespace {

RunnerShape RunnerShapeOf(const StepBatch::Shape& shape) {
  return {.max_rows = shape.max_sessions,
          .max_slots = shape.max_slots,
          .n_context = shape.n_context,
          .statistics = shape.statistics};
}

int64_t LogitsBytes(const Model& model, const StepBatch::Shape& shape) {
  return shape.max_sessions * int64_t{model.config().n_vocab} * 4;
}

// What all pots of one forward pass must share (kv/attend.h).
bool Together(const PotShape& a, const PotShape& b) {
  return a.k_type == b.k_type && a.v_type == b.v_type && a.positions == b.positions &&
         (a.windows.n_slots > 0) == (b.windows.n_slots > 0);
}

Chunk ChunkOf(const StepBatch::Step& step) {
  return {.n = 1, .tokens = &step.token, .t_src_ms = step.t_src_ms, .generated = true};
}

}  // namespace

int64_t StepBatch::Bytes(const Model& model, const Backend& backend, const Shape& shape) {
  const RunnerShape runner = RunnerShapeOf(shape);
  return Runner::MetaBytes(model, backend, runner) + Runner::WorkspaceBytes(model, backend, runner) +
         PageRound(LogitsBytes(model, shape));
}

Result<std::unique_ptr<StepBatch>> StepBatch::Make(Model& model, Backend& backend, const Shape& shape, Ledger& ledger) {
  std::unique_ptr<StepBatch> out(new StepBatch(shape));
  out->n_vocab_ = model.config().n_vocab;
  out->n_embd_ = model.config().n_embd;
  WEIR_ASSIGN_OR_RETURN(out->runner_, Runner::Make(model, backend, RunnerShapeOf(shape), ledger));
  WEIR_ASSIGN_OR_RETURN(out->logits_,
                        backend.Allocate(ledger, MemTag::kLogits, LogitsBytes(model, shape), Access::kDevice));
  return out;
}

bool StepBatch::Fits(const Session& session) const {
  const SessionPlan& plan = session.plan();
  const AttentionLayout& layout = session.model().config().attention;
  const auto as_long = [&](const RopeConfig& rope) {
    return rope.IsLong(plan.runner.n_context) == rope.IsLong(shape_.n_context);
  };
  return plan.runner.max_slots <= shape_.max_slots && (shape_.statistics || !plan.runner.statistics) &&
         as_long(layout.rope) && (!layout.window_rope || as_long(*layout.window_rope));
}

void StepBatch::Append(std::span<Step> steps) {
  std::vector<Step*> left, now;
  for (Step& step : steps) {
    // Alone, a session may read guesses with its token; what it has read already needs no pass.
    const ReadAhead& ahead = step.session->parts_.ahead;
    const bool own = (steps.size() == 1 && ahead.enabled()) || ahead.Holds(step.token);
    if (Fits(*step.session) && !own) {
      left.push_back(&step);
      continue;
    }
    Session::AppendOptions append;
    append.generated = true;
    append.t_src_ms = step.t_src_ms;
    step.status = step.session->Append({&step.token, 1}, append);
    if (step.status.ok()) step.status = step.session->Logits().status();
  }
  while (!left.empty()) {
    const PotShape& shape = left.front()->session->pot().shape();
    now.clear();
    std::erase_if(left, [&](Step* step) {
      if (std::ssize(now) == shape_.max_sessions || !Together(step->session->pot().shape(), shape)) return false;
      now.push_back(step);
      return true;
    });
    Share(now);
  }
}

void StepBatch::Share(std::span<Step* const> steps) {
  std::vector<Step*> reading;
  std::vector<BatchItem> items;
  for (Step* step : steps) {
    ChunkReader& reader = step->session->reader_;
    step->status = reader.CheckTokens({&step->token, 1});
    if (step->status.ok()) step->status = step->session->Settle();
    if (step->status.ok()) step->status = reader.MakeRoom(1).status();
    if (!step->status.ok()) continue;
    reading.push_back(step);
    const Chunk chunk = ChunkOf(*step);
    step->session->parts_.ahead.ReadElsewhere(chunk);
    items.push_back(reader.Begin(chunk));
  }
  if (items.empty()) return;
  const auto hidden = runner_->Forward(items);
  if (!hidden.ok()) {
    for (Step* step : reading) step->status = hidden.status();
    return;
  }
  if (items.size() > 1) {
    ++n_forwards_;
    n_shared_ += std::ssize(items);
  }
  runner_->Logits(*hidden, std::ssize(items), logits_.as<float>());
  Backend& backend = *steps.front()->session->core_.backend;
  backend.Synchronise();
  if (const Status status = backend.status(); !status.ok()) {
    for (Step* step : reading) step->status = status;
    return;
  }
  for (size_t i = 0; i < reading.size(); ++i) {
    Session& session = *reading[i]->session;
    const int64_t at = static_cast<int64_t>(i);
    session.reader_.End(ChunkOf(*reading[i]), items[i], *hidden + at * n_embd_, nullptr);
    session.parts_.prediction.TakeLogits(logits_.as<float>() + at * n_vocab_);
  }
}

}  // namespace weir
