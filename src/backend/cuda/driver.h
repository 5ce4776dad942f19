// SPDX-License-Identifier: Apache-2.0
// The few things that a device itself does with work. driver.cu is CUDA, twin/driver.cc the host's twin: it puts work
// off until somebody waits, and refuses of graphs what CUDA refuses.
#pragma once

#include <memory>

#include "backend/cuda/grid.h"
#include "backend/cuda/work_list.h"
#include "base/status.h"

namespace weir::WEIR_GPU {

// A graph that the device holds; nothing while `exec` is nullptr.
struct DriverGraph {
  void* graph = nullptr;
  void* exec = nullptr;
};

class Driver {
 public:
  Driver();
  ~Driver();
  // kInternal where the device has no stream.
  Status Open();

  // In the order of the calls. Parameters are read before it returns.
  Status Send(const Work& work, const Params& params);
  // Returns when everything that was sent is done.
  Status Wait();

  // Graphs: false where the device does not. The caller drops such a graph, and may send the list piece by piece.
  bool Build(WorkList& list, DriverGraph* out);  // sets the list's nodes
  // Piece i of the list that the graph was built of has changed.
  bool Update(const DriverGraph& graph, WorkList& list, int64_t i);
  // Sends the graph as it is now.
  bool Launch(const DriverGraph& graph);
  void Drop(DriverGraph* graph);

  // cudaStream_t.
  void* handle() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weir::WEIR_GPU
