// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/twin/watch.h"

#include <fmt/core.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

// Of the program's own code and constants.
extern "C" const char __executable_start[];
extern "C" const char _end[];

namespace weir::twin {
namespace {

constexpr int kWarp = 32;
constexpr int kMaxWarps = 32;
constexpr uintptr_t kPage = 4096;
constexpr size_t kMaxPages = 2048;  // whose marks outlive a launch; they serve to save allocations only

// Threads of a mark, besides the number of one thread.
constexpr uint16_t kOfWarp = 0x8000;    // several of a warp; plus its number
constexpr uint16_t kOfBlock = 0xfffe;   // of several warps
constexpr uint16_t kOfLaunch = 0xffff;  // of several blocks

// A stage is the time between two barriers of one block; stages of all blocks are numbered in one sequence.
struct Mark {
  uint32_t stage = 0;  // 0: none
  uint16_t thread = 0;
  uint16_t warp_stage = 0;  // the same for the barriers of the thread's warp
};
struct Cell {
  Mark write, read;
};
struct Page {
  Cell cells[kPage];
};

struct Range {
  uintptr_t begin = 0, n_bytes = 0;
  bool Has(uintptr_t at) const { return at - begin < n_bytes; }
};

struct Memory {
  std::mutex mutex;
  std::map<uintptr_t, Range> ranges;
  std::atomic<uint64_t> version = 0;
};
Memory& AllMemory() {
  static Memory memory;
  return memory;
}

struct State {
  uint32_t stage = 0, first_of_launch = 0, first_of_block = 0;
  uint16_t warp_stage[kMaxWarps] = {};
  uintptr_t shared = 0;
  int64_t shared_bytes = 0;
  std::vector<Cell> shared_cells;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
  Page* page = nullptr;  // the last one used
  uintptr_t page_at = 0;
  std::array<Range, 8> ranges;  // recently used, of this version
  size_t next_range = 0;
  uint64_t version = 0;
  std::string problem;
};
State& Now() {
  static thread_local State state;
  return state;
}

struct Access {
  uintptr_t at;
  int64_t bytes;
  bool write;
  const void* caller;  // where in the program
};

void RefuseAccess(const Access& access, const char* what) {
  Refuse(fmt::format("thread {}, a {} of {} bytes at {:#x} {} (addr2line -Cfe PROGRAM {:#x})", watched.thread,
                     access.write ? "write" : "read", access.bytes, access.at, what,
                     reinterpret_cast<uintptr_t>(access.caller) - reinterpret_cast<uintptr_t>(__executable_start)));
}

// Whether an earlier access of the block's present stage is not ordered before one of this thread. REQUIRES: the mark
// is of this stage.
bool Meets(const State& s, const Mark& mark, int thread) {
  const int warp = thread / kWarp;
  if (mark.thread == kOfBlock) return true;
  if (mark.thread >= kOfWarp) return mark.thread - kOfWarp != warp || mark.warp_stage == s.warp_stage[warp];
  if (mark.thread == thread) return false;
  return mark.thread / kWarp != warp || mark.warp_stage == s.warp_stage[warp];
}

// `first`: stages before it are of another launch or, for shared memory, of another block.
bool Races(const State& s, const Mark& mark, int thread, uint32_t first) {
  if (mark.stage < first) return false;
  if (mark.stage < s.first_of_block || mark.thread == kOfLaunch) return true;  // other blocks
  return mark.stage == s.stage && Meets(s, mark, thread);
}

void AddReader(const State& s, int thread, uint32_t first, Mark* mark) {
  const int warp = thread / kWarp;
  const Mark mine = {s.stage, static_cast<uint16_t>(thread), s.warp_stage[warp]};
  if (mark->stage >= first && (mark->stage < s.first_of_block || mark->thread == kOfLaunch)) {
    *mark = {s.stage, kOfLaunch, 0};
  } else if (mark->stage != s.stage || mark->thread == thread) {
    *mark = mine;  // earlier ones are ordered before whatever comes
  } else if (mark->thread != kOfBlock) {
    const int other = mark->thread >= kOfWarp ? mark->thread - kOfWarp : mark->thread / kWarp;
    if (other != warp) {
      mark->thread = kOfBlock;
    } else if (mark->warp_stage != mine.warp_stage) {
      *mark = mine;
    } else {
      mark->thread = static_cast<uint16_t>(kOfWarp + warp);
    }
  }
}

void CheckRaces(State& s, const Access& access, Cell* cells, uint32_t first) {
  const int thread = watched.thread;
  const Mark mine = {s.stage, static_cast<uint16_t>(thread), s.warp_stage[thread / kWarp]};
  for (int64_t i = 0; i < access.bytes; ++i) {
    Cell& cell = cells[i];
    if (Races(s, cell.write, thread, first)) {
      RefuseAccess(access, "meets another thread's write without a barrier between them");
    } else if (access.write && Races(s, cell.read, thread, first)) {
      RefuseAccess(access, "meets another thread's read without a barrier between them");
    }
    if (access.write) {
      cell.write = mine;
    } else {
      AddReader(s, thread, first, &cell.read);
    }
  }
}

void AccessShared(State& s, const Access& access) {
  const int64_t offset = static_cast<int64_t>(access.at - s.shared);
  if (offset + access.bytes > s.shared_bytes) return RefuseAccess(access, "ends beyond the shared memory");
  Cell* cells = &s.shared_cells[static_cast<size_t>(offset)];
  for (int64_t i = 0; i < access.bytes && !access.write; ++i) {
    if (cells[i].write.stage < s.first_of_block) {
      RefuseAccess(access, "finds shared memory that no thread has written");
      break;
    }
  }
  CheckRaces(s, access, cells, s.first_of_block);
}

// The allocation that has this address; empty when none has.
Range RangeOf(State& s, uintptr_t at) {
  Memory& memory = AllMemory();
  if (s.version != memory.version) {
    s.version = memory.version;
    s.ranges = {};
  }
  for (const Range& range : s.ranges) {
    if (range.Has(at)) return range;
  }
  const std::lock_guard lock(memory.mutex);
  const auto after = memory.ranges.upper_bound(at);
  if (after == memory.ranges.begin() || !std::prev(after)->second.Has(at)) return {};
  return s.ranges[s.next_range++ % s.ranges.size()] = std::prev(after)->second;
}

// Whether the access lies in the device's memory; false also for the program's constants, which are not checked.
bool InDeviceMemory(State& s, const Access& access) {
  const Range range = RangeOf(s, access.at);
  if (range.n_bytes > 0) {
    if (access.at - range.begin + static_cast<uintptr_t>(access.bytes) <= range.n_bytes) return true;
    RefuseAccess(access, "ends beyond an allocation");
  } else if (access.write || access.at < reinterpret_cast<uintptr_t>(__executable_start) ||
             access.at >= reinterpret_cast<uintptr_t>(_end)) {
    RefuseAccess(access, "is outside the device's and the block's memory");
  }
  return false;
}

void AccessDevice(State& s, Access access) {
  if (!InDeviceMemory(s, access)) return;
  while (access.bytes > 0) {
    const uintptr_t at = access.at / kPage, offset = access.at % kPage;
    if (s.page == nullptr || s.page_at != at) {
      std::unique_ptr<Page>& page = s.pages[at];
      if (page == nullptr) page = std::make_unique<Page>();
      s.page = page.get();
      s.page_at = at;
    }
    Access part = access;
    part.bytes = std::min(access.bytes, static_cast<int64_t>(kPage - offset));
    CheckRaces(s, part, &s.page->cells[offset], s.first_of_launch);
    access.at += static_cast<uintptr_t>(part.bytes);
    access.bytes -= part.bytes;
  }
}

void Check(const void* address, int64_t bytes, int64_t alignment, bool write, const void* caller) {
  const Watched& w = watched;
  if (!w.on || bytes <= 0) return;
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (at - reinterpret_cast<uintptr_t>(w.stack) < static_cast<uintptr_t>(w.stack_bytes)) return;  // its own variables
  State& s = Now();
  const Access access = {at, bytes, write, caller};
  if (at % static_cast<uintptr_t>(alignment) != 0) RefuseAccess(access, "is not aligned");
  if (at - s.shared < static_cast<uintptr_t>(s.shared_bytes)) {
    AccessShared(s, access);
  } else {
    AccessDevice(s, access);
  }
}

void RefuseValue(const char* what, const void* caller) {
  if (!watched.on) return;
  Refuse(fmt::format("thread {}: {} (addr2line -Cfe PROGRAM {:#x})", watched.thread, what,
                     reinterpret_cast<uintptr_t>(caller) - reinterpret_cast<uintptr_t>(__executable_start)));
}

}  // namespace

void AllowMemory(const void* address, int64_t n_bytes) {
  Memory& memory = AllMemory();
  const std::lock_guard lock(memory.mutex);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  memory.ranges[begin] = {begin, static_cast<uintptr_t>(n_bytes)};
  ++memory.version;
}

void ForbidMemory(const void* address) {
  Memory& memory = AllMemory();
  const std::lock_guard lock(memory.mutex);
  memory.ranges.erase(reinterpret_cast<uintptr_t>(address));
  ++memory.version;
}

bool StaysWithin(const void* address, int64_t n_bytes) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const Range range = RangeOf(Now(), at);
  return range.n_bytes == 0 || at - range.begin + static_cast<uintptr_t>(n_bytes) <= range.n_bytes;
}

void WatchLaunch() {
  State& s = Now();
  // Marks of earlier launches mean nothing.
  if (s.pages.size() > kMaxPages || s.stage > UINT32_MAX / 2) {
    s.pages.clear();
    s.page = nullptr;
  }
  if (s.stage > UINT32_MAX / 2) {
    s.shared_cells.clear();
    s.stage = 0;
  }
  s.first_of_launch = s.stage + 1;
  s.problem.clear();
}

void WatchBlock(const uint8_t* shared, int64_t shared_bytes) {
  State& s = Now();
  s.first_of_block = ++s.stage;
  std::fill(std::begin(s.warp_stage), std::end(s.warp_stage), uint16_t{0});
  s.shared = reinterpret_cast<uintptr_t>(shared);
  s.shared_bytes = shared_bytes;
  if (std::ssize(s.shared_cells) < shared_bytes) s.shared_cells.resize(static_cast<size_t>(shared_bytes));
}

void WatchBarrier() { ++Now().stage; }
void WatchWarpBarrier(int warp) { ++Now().warp_stage[warp]; }

void Refuse(const std::string& what) {
  State& s = Now();
  if (s.problem.empty()) s.problem = what;
}

std::string TakeProblem() { return std::exchange(Now().problem, {}); }

}  // namespace weir::twin

// What the compiler's instrumentation calls.
extern "C" {

#define WEIR_PC __builtin_return_address(0)
#define WEIR_ACCESS(n)                                                           \
  void __tsan_read##n(void* at) { weir::twin::Check(at, n, n, false, WEIR_PC); } \
  void __tsan_write##n(void* at) { weir::twin::Check(at, n, n, true, WEIR_PC); }
WEIR_ACCESS(1)
WEIR_ACCESS(2)
WEIR_ACCESS(4)
WEIR_ACCESS(8)
WEIR_ACCESS(16)
// A copy of a type whose alignment is less than its size; -fsanitize=alignment knows the type's.
#define WEIR_UNALIGNED(n)                                                                  \
  void __tsan_unaligned_read##n(void* at) { weir::twin::Check(at, n, 1, false, WEIR_PC); } \
  void __tsan_unaligned_write##n(void* at) { weir::twin::Check(at, n, 1, true, WEIR_PC); }
WEIR_UNALIGNED(2)
WEIR_UNALIGNED(4)
WEIR_UNALIGNED(8)
WEIR_UNALIGNED(16)
void __tsan_read_range(void* at, size_t n) { weir::twin::Check(at, static_cast<int64_t>(n), 1, false, WEIR_PC); }
void __tsan_write_range(void* at, size_t n) { weir::twin::Check(at, static_cast<int64_t>(n), 1, true, WEIR_PC); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// Of the host's code in the same files.
char __tsan_atomic8_load(const volatile char* from, int) { return __atomic_load_n(from, __ATOMIC_SEQ_CST); }
void __tsan_atomic8_store(volatile char* to, char value, int) { __atomic_store_n(to, value, __ATOMIC_SEQ_CST); }
int __tsan_atomic32_fetch_add(volatile int* to, int value, int) {
  return __atomic_fetch_add(to, value, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_fetch_sub(volatile int* to, int value, int) {
  return __atomic_fetch_sub(to, value, __ATOMIC_SEQ_CST);
}

void __ubsan_handle_type_mismatch_v1(void*, void*) {
  weir::twin::RefuseValue("an address that its type does not allow", WEIR_PC);
}
void __ubsan_handle_out_of_bounds(void*, void*) { weir::twin::RefuseValue("an index beyond the array", WEIR_PC); }
#define WEIR_OVERFLOW(name) \
  void __ubsan_handle_##name(void*, void*, void*) { weir::twin::RefuseValue("an integer overflows", WEIR_PC); }
WEIR_OVERFLOW(add_overflow)
WEIR_OVERFLOW(sub_overflow)
WEIR_OVERFLOW(mul_overflow)
WEIR_OVERFLOW(divrem_overflow)
WEIR_OVERFLOW(shift_out_of_bounds)
void __ubsan_handle_negate_overflow(void*, void*) { weir::twin::RefuseValue("an integer overflows", WEIR_PC); }
void __ubsan_handle_float_cast_overflow(void*, void*) {
  weir::twin::RefuseValue("a number that the integer cannot hold", WEIR_PC);
}

}  // extern "C"
