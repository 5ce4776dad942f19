// SPDX-License-Identifier: Apache-2.0
// Ends unused sessions, so that their bytes return to the budget.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "serve/handover.h"

namespace weir {

class IdleSweeper {
 public:
  // While the sweeper exists, a session that no job works on and no request has named for `idle` is handed over, or
  // deleted if `handover` is not enabled. idle 0: never. Both others must outlive it.
  IdleSweeper(Host& host, Handover& handover, std::chrono::seconds idle);
  ~IdleSweeper();
  IdleSweeper(const IdleSweeper&) = delete;
  IdleSweeper& operator=(const IdleSweeper&) = delete;

 private:
  void Sweep();

  Host& host_;
  Handover& handover_;
  const std::chrono::seconds idle_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace weir
