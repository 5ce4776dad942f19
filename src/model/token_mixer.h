// SPDX-License-Identifier: Apache-2.0
// What connects the tokens in one layer of a hybrid model: attention over a pot, or a recurrence with a state of fixed
// size (kv/recurrent_state.h). Everything else in a layer looks at one row at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backend/backend.h"
#include "base/workspace.h"
#include "kv/attend.h"

namespace weir {

class TokenMixer {
 public:
  virtual ~TokenMixer() = default;

  // Columns of its result, which the layer's output projection reads.
  virtual int64_t n_out() const = 0;
  // F32 numbers that it keeps of a stream; 0: it attends, and the pot has a layer for it.
  virtual int64_t n_state() const { return 0; }
  virtual int64_t WeightBytes() const = 0;
  // Of a call over n_rows.
  virtual int64_t WorkspaceBytes(int64_t n_rows) const = 0;
  // The widest row that one of its products reads.
  virtual int64_t widest() const = 0;

  struct Call {
    Attender* attender = nullptr;
    const float* x = nullptr;  // [n_rows, n_embd], normalised
    int64_t n_rows = 0;
    float* out = nullptr;  // [n_rows, n_out()]
    Workspace space;       // WorkspaceBytes(n_rows)
    void* scratch = nullptr;
    // Named intermediates, for an observer; may be empty.
    std::function<void(const char* name, int64_t cols, const float* data)> observe;
  };
  virtual void Run(const Call& call) = 0;

  // The place in the pot: which of its layers, or where in its state. Set once, after loading.
  void Place(int64_t place) { place_ = place; }

 protected:
  int64_t place_ = 0;
};

}  // namespace weir
