// SPDX-License-Identifier: Apache-2.0
// Questions asked aside: their tokens are read on top of what a session holds, the prediction of the token after them
// is looked at, and they are removed again. They take slots that are kept free for them, so nothing is forgotten.
//
// Nothing of the stream changes: not what is held, nor statistics, likelihoods, the last row or the listener's view.
// Where layers have windows with slots of their own, room in these may be made earlier, which changes later results
// within rounding.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/buffer_space.h"
#include "engine/session/core.h"

namespace weir {

class Aside {
 public:
  // Memory of the logits. Laid out only where SessionOptions::aside_slots are kept free.
  void LayOut(const Model& model, const Backend& backend, BufferSpace* space);
  // Sets the session; it must outlive the object.
  void Use(SessionCore* core) { core_ = core; }

  // As Session::AskAside().
  using Each = std::function<void(size_t tail, std::span<const float> logits)>;
  Status Ask(std::span<const int32_t> head, std::span<const std::vector<int32_t>> tails, const Each& each,
             const std::atomic<bool>* stop);

 private:
  class Rows;
  Status Check(std::span<const int32_t> head, std::span<const std::vector<int32_t>> tails) const;
  // The logits after a row, in the host's memory.
  Result<std::span<const float>> LogitsAfter(const float* hidden);

  SessionCore* core_ = nullptr;
  int64_t n_vocab_ = 0;
  float* logits_ = nullptr;       // [n_vocab]
  float* host_logits_ = nullptr;  // their copy, if logits_ is on a device
};

}  // namespace weir
