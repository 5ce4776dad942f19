// SPDX-License-Identifier: Apache-2.0
#include "memory_reserve.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

namespace weir::app {
namespace {

constexpr size_t kBytes = size_t{256} << 10;
std::array<std::atomic<void*>, 16> reserves{};

// One of them; the allocation is then tried again.
void GiveUp() {
  for (std::atomic<void*>& reserve : reserves) {
    if (void* const held = reserve.exchange(nullptr); held != nullptr) {
      munmap(held, kBytes);
      return;
    }
  }
  throw std::bad_alloc();
}

}  // namespace

void HoldMemoryReserve() {
  RenewMemoryReserve();
  std::set_new_handler(GiveUp);
}

void RenewMemoryReserve() {
  for (std::atomic<void*>& reserve : reserves) {
    if (reserve.load(std::memory_order_relaxed) != nullptr) continue;
    void* const held = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (held == MAP_FAILED) return;
    void* none = nullptr;
    if (!reserve.compare_exchange_strong(none, held)) munmap(held, kBytes);
  }
}

}  // namespace weir::app
