// SPDX-License-Identifier: Apache-2.0
// Submission of a device's work: launches and copies, submitted immediately or, within a recorded pass, held back and
// submitted as one graph (graphs.h).
#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

#include "backend/cuda/driver.h"
#include "backend/cuda/graphs.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/work_list.h"
#include "base/status.h"

// A GCC builtin that nvcc also has. Without it, padding bytes may cause needless updates of a graph.
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define WEIR_CLEAR_PADDING(address) __builtin_clear_padding(address)
#endif
#endif
#ifndef WEIR_CLEAR_PADDING
#define WEIR_CLEAR_PADDING(address) static_cast<void>(address)
#endif

namespace weir::WEIR_GPU {

class Stream {
 public:
  Status Open() { return driver_.Open(); }
  // Allocates memory for recording and graphs; without it, Record() does nothing.
  Status ReserveGraphs(Ledger& ledger);

  template <typename... P, typename... A>
  void Launch(void (*kernel)(P...), Grid grid, int threads, int64_t shared_bytes, const A&... args) {
    static_assert(sizeof...(P) <= kMaxParams);
    if (!status_.ok() || grid.x * grid.y * grid.z == 0) return;
    Work work;
    work.kernel = reinterpret_cast<const void*>(kernel);
    work.call = CallOf(kernel);
    work.grid = grid;
    work.shared_bytes = shared_bytes;
    work.threads = threads;
    std::tuple<P...> values(static_cast<P>(args)...);
    Params params;
    std::apply(
        [&](auto&... value) {
          if (recording_) (WEIR_CLEAR_PADDING(&value), ...);
          ((params.param[params.n++] = {&value, sizeof(value)}), ...);
        },
        values);
    Put(work, params);
  }
  void Copy(void* to, const void* from, int64_t n_bytes, CopyKind kind);

  // Work from here on is held back until Send() or Wait(). It begins with a copy whose size is set later: its source
  // may be written until then. Does nothing when memory for recording is missing or work is already held back.
  void Record(void* to, const void* from, CopyKind kind);
  void SetFirstCopy(int64_t n_bytes) { recorded_.SetCopyBytes(0, n_bytes); }
  bool recording() const { return recording_; }
  // Submits the work held back, as a graph or piece by piece.
  void Send();
  // The same, always piece by piece: for work in the middle of a pass that cannot be held back.
  void SendPlainly();
  // Submits the work held back; returns when everything is done.
  void Wait();

  // cudaStream_t, for callers that submit work themselves; submits the work held back first.
  void* handle();

  void Check(Status status) {
    if (!status.ok()) Fail(std::move(status));
  }
  // Keeps the first failure, permanently.
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }
  const PassCounts& counts() { return graphs_.counts(); }

 private:
  void Put(const Work& work, const Params& params);

  Driver driver_;
  Graphs graphs_{driver_};  // freed first
  WorkList recorded_;
  bool recording_ = false;
  Status status_;
};

}  // namespace weir::WEIR_GPU
