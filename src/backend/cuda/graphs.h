// SPDX-License-Identifier: Apache-2.0
// Passes as graphs: which device graph runs a pass, which nodes have changed, and when a graph is worth making.
//
// From one token to the next, a pass has the same operations on the same memory, except for a few that depend on the
// pot: the slot of a store, the slots that attention sees. A graph can run the next pass after these nodes are updated,
// one call each, and costs one launch. Device-independent: the twin's tests run this code.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/work_list.h"
#include "base/status.h"

namespace weir::WEIR_GPU {

class Graphs {
 public:
  explicit Graphs(Driver& driver) : driver_(driver) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Memory for the cached shapes. Without it, no pass becomes a graph.
  Status Reserve(Ledger& ledger);
  // If the device keeps rejecting graphs, they are no longer tried.
  bool enabled() const { return !kept_.empty() && counts_.failed < kMaxFailures; }

  // True when the list was launched as one graph; false when nothing was submitted. A shape becomes a graph the second
  // time it occurs: making one costs as much as several passes launched piece by piece, and many shapes occur only
  // once.
  bool Send(const WorkList& list);

  PassCounts& counts() { return counts_; }

 private:
  // Enough that passes with statistics, without, and with another number of splits do not evict each other.
  static constexpr int kKept = 3;
  static constexpr int64_t kMaxFailures = 3;
  static constexpr size_t kRemembered = 8;
  struct Kept {
    WorkList list;  // the list that the graph runs
    DriverGraph graph;
    int64_t last_used = 0;
  };
  bool SendAgain(Kept& kept, const WorkList& list);
  bool Fail(Kept& kept);

  Driver& driver_;
  std::vector<Kept> kept_;
  uint64_t seen_[kRemembered] = {};  // shapes seen that have no graph
  int64_t n_seen_ = 0, now_ = 0;
  PassCounts counts_;
};

}  // namespace weir::WEIR_GPU
