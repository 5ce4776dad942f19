// SPDX-License-Identifier: Apache-2.0
// Ends sessions that nobody uses, so that their bytes go back to the budget.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "serve/handover.h"

namespace weir {

class IdleSweeper {
 public:
  // For as long as it lives, a session that nothing works on and no request has named for `idle` is handed over, or
  // deleted where `handover` is not enabled. idle 0: never. Both others outlive it.
  IdleSweeper(Host& host, const Handover& handover, std::chrono::seconds idle);
  ~IdleSweeper();
  IdleSweeper(const IdleSweeper&) = delete;
  IdleSweeper& operator=(const IdleSweeper&) = delete;

 private:
  void Sweep();

  Host& host_;
  const Handover& handover_;
  const std::chrono::seconds idle_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace weir
