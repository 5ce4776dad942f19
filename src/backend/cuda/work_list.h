// SPDX-License-Identifier: Apache-2.0
// A recorded list of device work: launches with the bytes of their parameters, and copies.
//
// A pass is recorded in a list, and a device graph keeps the list of the pass that it runs. It allocates nothing while
// it is used: Make() reserves memory for kMaxWork pieces of work.
#pragma once

#include <cstdint>

#include "backend/cuda/grid.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"

namespace weir::WEIR_GPU {

// The direction of a copy in a graph, which CUDA cannot update later: which sides are host memory.
enum class CopyKind : int32_t { kInDevice, kFromHost, kToHost, kInHost };

// A launch or, if `kernel` is nullptr, a copy.
struct Work {
  const void* kernel = nullptr;
  KernelCall call = {};
  Grid grid;
  int64_t shared_bytes = 0;
  int32_t threads = 0;
  CopyKind kind = CopyKind::kInDevice;
  void* to = nullptr;
  const void* from = nullptr;
  int64_t n_bytes = 0;

  bool is_nothing() const { return kernel == nullptr && n_bytes == 0; }
};

// One kernel parameter in host memory.
struct Param {
  const void* data = nullptr;
  int64_t n_bytes = 0;
};
inline constexpr int kMaxParams = 16;

// The parameters of a launch.
struct Params {
  Param param[kMaxParams];
  int32_t n = 0;
};

class WorkList {
 public:
  static constexpr int64_t kMaxWork = 4096;
  static constexpr int64_t kMaxParamBytes = int64_t{4} << 20;
  // Errors of HostBuffer::Allocate().
  static Result<WorkList> Make(Ledger& ledger);

  void Clear();
  // False, and nothing is added, when the list is full.
  bool Add(const Work& work, const Params& params);
  // Becomes a copy of `other`.
  void Assign(const WorkList& other);
  // Copies piece i from `other`. REQUIRES: HasShapeOf(other).
  void Assign(int64_t i, const WorkList& other);

  int64_t size() const { return size_; }
  const Work& work(int64_t i) const { return entries()[i].work; }
  void SetCopyBytes(int64_t i, int64_t n_bytes) { entries()[i].work.n_bytes = n_bytes; }
  // Parameters of piece i, in memory of the list.
  Params ParamsOf(int64_t i) const;
  // The graph's handle of piece i; set by the driver.
  void*& node(int64_t i) { return entries()[i].node; }

  // A hash that lists of the same shape share.
  uint64_t shape() const { return shape_; }
  // The same kernels and kinds of copies in the same order: one graph can run both.
  bool HasShapeOf(const WorkList& other) const;
  // The same grid, bytes of parameters, addresses of a copy. REQUIRES: HasShapeOf(other).
  bool IsSame(int64_t i, const WorkList& other) const;

 private:
  struct Entry {
    Work work;
    void* node;
    int32_t n_params;
    int32_t at;       // in the parameters' memory: [n_params, 2] int32 offsets from here and sizes, then the parameters
    int32_t n_bytes;  // of both
  };
  Entry* entries() const { return memory_.as<Entry>(); }
  uint8_t* params() const { return memory_.data() + kMaxWork * static_cast<int64_t>(sizeof(Entry)); }

  HostBuffer memory_;
  int64_t size_ = 0;
  int32_t used_ = 0;  // of the parameters' memory
  uint64_t shape_ = 0;
};

}  // namespace weir::WEIR_GPU
