// SPDX-License-Identifier: Apache-2.0
// The few operations that a device itself performs. driver.cu is CUDA, twin/driver.cc the twin on the host: it defers
// work until a call waits for it, and rejects the graph operations that CUDA rejects.
#pragma once

#include <memory>

#include "backend/cuda/grid.h"
#include "backend/cuda/work_list.h"
#include "base/status.h"

namespace weir::WEIR_GPU {

// A graph held by the device; empty while `exec` is nullptr.
struct DriverGraph {
  void* graph = nullptr;
  void* exec = nullptr;
};

class Driver {
 public:
  Driver();
  ~Driver();
  // kInternal when the device has no stream.
  Status Open();

  // In the order of the calls. Parameters are read before it returns.
  Status Send(const Work& work, const Params& params);
  // Returns when all submitted work is done.
  Status Wait();

  // Graphs: these return false when the device rejects them. The caller then drops the graph and may submit the list
  // piece by piece.
  bool Build(WorkList& list, DriverGraph* out);  // sets the list's nodes
  // Piece i of the list that the graph was built from has changed.
  bool Update(const DriverGraph& graph, WorkList& list, int64_t i);
  // Launches the graph in its current state.
  bool Launch(const DriverGraph& graph);
  void Drop(DriverGraph* graph);

  // cudaStream_t.
  void* handle() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weir::WEIR_GPU
