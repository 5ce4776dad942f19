// SPDX-License-Identifier: Apache-2.0
// Waiting for what another thread or process does.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace weir::testing {

// Whether something came true within a minute, which a busy machine may need.
inline bool Until(const std::function<bool()>& true_now) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!true_now()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace weir::testing
