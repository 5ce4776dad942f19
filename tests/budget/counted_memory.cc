// SPDX-License-Identifier: Apache-2.0
#include "budget/counted_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>

// glibc's own, under the names that a replacement may call.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);
}

namespace {

std::atomic<int64_t> taken{0}, peak{0};

void Add(int64_t bytes, bool raises_peak = true) {
  const int64_t now = taken.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes < 0 || !raises_peak) return;
  int64_t before = peak.load(std::memory_order_relaxed);
  while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
}

int64_t SizeOf(void* block) { return block == nullptr ? 0 : static_cast<int64_t>(malloc_usable_size(block) + 8); }

void* Counted(void* block) {
  if (block != nullptr) Add(SizeOf(block));
  return block;
}

// Anonymous mappings, which may be unmapped in pieces. No allocation in here.
struct Range {
  uintptr_t begin = 0, end = 0;
};
constexpr int kMostRanges = 4096;
Range ranges[kMostRanges];
int n_ranges = 0;
std::atomic_flag busy = ATOMIC_FLAG_INIT;

class Lock {
 public:
  Lock() {
    while (busy.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~Lock() { busy.clear(std::memory_order_release); }
};

// What is mapped without a reserve is addresses, of which the ends may be given back at once (base/memory.cc): what is
// left counts from the next block on.
void Mapped(uintptr_t begin, size_t bytes, bool reserved) {
  const Lock lock;
  if (n_ranges < kMostRanges) {
    ranges[n_ranges++] = {begin, begin + bytes};
    Add(static_cast<int64_t>(bytes), reserved);
  }
}

void Unmapped(uintptr_t begin, size_t bytes) {
  const Lock lock;
  const uintptr_t end = begin + bytes;
  for (int i = 0; i < n_ranges; ++i) {
    const Range r = ranges[i];
    const uintptr_t from = std::max(r.begin, begin), to = std::min(r.end, end);
    if (from >= to) continue;
    Add(-static_cast<int64_t>(to - from));
    ranges[i] = ranges[--n_ranges];
    for (const Range rest : {Range{r.begin, from}, Range{to, r.end}}) {
      if (rest.begin < rest.end && n_ranges < kMostRanges) ranges[n_ranges++] = rest;
    }
    i = -1;  // the order has changed
  }
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) { return Counted(__libc_malloc(bytes)); }
void* calloc(size_t n, size_t bytes) { return Counted(__libc_calloc(n, bytes)); }
void* memalign(size_t alignment, size_t bytes) { return Counted(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(size_t alignment, size_t bytes) { return Counted(__libc_memalign(alignment, bytes)); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* block = Counted(__libc_memalign(alignment, bytes));
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}
void* realloc(void* old, size_t bytes) {
  const int64_t before = SizeOf(old);
  void* block = __libc_realloc(old, bytes);
  if (block == nullptr && bytes > 0) return nullptr;
  Add(SizeOf(block) - before);
  return block;
}
void free(void* block) {
  if (block == nullptr) return;
  Add(-SizeOf(block));
  __libc_free(block);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  const long at = syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
  void* const out = reinterpret_cast<void*>(at);
  if (out != MAP_FAILED && (flags & MAP_ANONYMOUS) != 0) {
    Mapped(reinterpret_cast<uintptr_t>(out), bytes, (flags & MAP_NORESERVE) == 0);
  }
  return out;
}
void* mmap64(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  return mmap(address, bytes, protection, flags, fd, offset);
}
int munmap(void* address, size_t bytes) noexcept {
  const int out = static_cast<int>(syscall(SYS_munmap, address, bytes));
  if (out == 0) Unmapped(reinterpret_cast<uintptr_t>(address), bytes);
  return out;
}

}  // extern "C"

namespace weir::testing {

int64_t TakenBytes() { return taken.load(); }
int64_t TakenPeak() { return peak.load(); }
void ResetTakenPeak() { peak.store(taken.load()); }

}  // namespace weir::testing
