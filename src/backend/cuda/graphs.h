// SPDX-License-Identifier: Apache-2.0
// Passes as graphs: which graph of the device does a pass, what of it has changed, and when one is worth making.
//
// From one token to the next a pass is the same operations on the same memory, but for the few that follow the pot: a
// store's slot, the slots that attention sees. A graph that did one pass does the next when these pieces are told anew,
// a call each, and costs one launch. Device-independent: the twin's tests run this code.
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

  // Memory for the shapes that are kept. Without it, no pass becomes a graph.
  Status Reserve(Ledger& ledger);
  // A device that keeps refusing is not asked any more.
  bool enabled() const { return !kept_.empty() && counts_.failed < kMaxFailures; }

  // True when the list was sent as one graph; false when nothing was sent. A shape becomes a graph when it comes for
  // the second time: making one costs as much as some passes launched piece by piece, and many shapes come once.
  bool Send(const WorkList& list);

  PassCounts& counts() { return counts_; }

 private:
  // A pass with statistics, one without, and one of another number of splits do not drive each other out.
  static constexpr int kKept = 3;
  static constexpr int64_t kMaxFailures = 3;
  static constexpr size_t kRemembered = 8;
  struct Kept {
    WorkList list;  // what the graph does
    DriverGraph graph;
    int64_t last_used = 0;
  };
  bool SendAgain(Kept& kept, const WorkList& list);
  bool Fail(Kept& kept);

  Driver& driver_;
  std::vector<Kept> kept_;
  uint64_t seen_[kRemembered] = {};  // shapes that came and are no graph
  int64_t n_seen_ = 0, now_ = 0;
  PassCounts counts_;
};

}  // namespace weir::WEIR_GPU
