// SPDX-License-Identifier: Apache-2.0
// StepBatch: reads the next token of several sessions in one forward pass (batched decoding).
//
// Reading one token alone streams all weights for a single row; sessions that generate at the same time share that
// pass. Each session's state and its next token's logits are byte for byte the same as if it had read the token alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "engine/runner.h"
#include "engine/session.h"

namespace weir {

class StepBatch {
 public:
  struct Shape {
    int64_t max_sessions = 1;
    int64_t max_slots = 0;    // slots of the largest head of a pot
    int64_t n_context = 0;    // as RunnerShape::n_context
    bool statistics = false;  // policies may collect attention
  };
  // The shape for a batch of max_sessions sessions with this plan.
  static Shape ShapeFor(const SessionPlan& plan, int64_t max_sessions) {
    return {.max_sessions = max_sessions,
            .max_slots = plan.runner.max_slots,
            .n_context = plan.runner.n_context,
            .statistics = plan.runner.statistics};
  }

  // Reserves Bytes() in `ledger`.
  static Result<std::unique_ptr<StepBatch>> Make(Model& model, Backend& backend, const Shape& shape, Ledger& ledger);
  static int64_t Bytes(const Model& model, const Backend& backend, const Shape& shape);

  // One token for one session, read as by Session::Append() with `generated`. `status` is the result.
  struct Step {
    Session* session = nullptr;
    int32_t token = -1;
    int64_t t_src_ms = 0;
    Status status;
  };
  // Runs all steps; any number. Compatible sessions (cache types, kind of positions, the batch's shape) share forward
  // passes, the others read alone. Afterwards Logits() of every session that read its token is already computed.
  // REQUIRES: the sessions are distinct and belong to this model and backend.
  void Append(std::span<Step> steps);

  int64_t n_forwards() const { return n_forwards_; }  // shared ones, so far
  int64_t n_shared() const { return n_shared_; }      // tokens that they read

 private:
  explicit StepBatch(const Shape& shape) : shape_(shape) {}
  bool Fits(const Session& session) const;
  void Share(std::span<Step* const> steps);

  const Shape shape_;
  std::unique_ptr<Runner> runner_;
  Buffer logits_;  // [max_sessions, n_vocab]
  int64_t n_vocab_ = 0, n_embd_ = 0;
  int64_t n_forwards_ = 0, n_shared_ = 0;
};

}  // namespace weir
