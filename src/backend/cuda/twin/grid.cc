// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/grid.h"

#include <fmt/core.h>
#include <ucontext.h>
#include <csetjmp>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "backend/cuda/twin/watch.h"

namespace weir::twin {
namespace {

constexpr int kMaxThreads = 1024;
constexpr size_t kStackBytes = 64 << 10;
constexpr int kFence = 256;                 // guard bytes after the shared memory
constexpr int64_t kSharedLimit = 99 << 10;  // the smallest of the devices we build for (sm_86, sm_89)

// A thread of a block. Its stack and context are created once and reused for every block.
struct Fiber {
  std::unique_ptr<uint8_t[]> stack;
  ucontext_t context;
  std::jmp_buf at;
  std::deque<PendingCopy> copies;
  std::deque<int> groups;  // how many of the copies each has
  int ungrouped = 0;
  bool started = false;
  bool done = true;
};

// Where threads wait until all `n` have arrived, all from the same call.
struct Meeting {
  int arrived = 0;
  int64_t round = 0;
  Where caller;
};

struct Warp {
  alignas(16) uint8_t slots[2][32][kExchangeBytes];
  Meeting exchange, barrier;
};

struct Block {
  std::vector<Fiber> fibers = std::vector<Fiber>(kMaxThreads);
  std::vector<Warp> warps = std::vector<Warp>(kMaxThreads / 32);
  std::vector<uint8_t> shared;
  const std::function<void()>* body = nullptr;
  std::jmp_buf scheduler;
  int n_threads = 0, thread = 0;
  bool watch = true;
  int64_t n_launches = 0;
  int64_t x = 0, y = 0, z = 0, n_x = 0;
  Meeting barrier;
  bool progress = false;  // a thread passed a barrier or ended since the scheduler last looked
};

Block& Now() {
  static thread_local Block block;
  return block;
}

void Yield() {
  Block& b = Now();
  watched.on = false;
  if (_setjmp(b.fibers[b.thread].at) == 0) _longjmp(b.scheduler, 1);
}

bool Same(const Where& a, const Where& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

// True for the last of the n threads.
bool Meet(int n, Meeting& meeting, const Where& caller) {
  if (meeting.arrived == 0) {
    meeting.caller = caller;
  } else if (!Same(meeting.caller, caller)) {
    Refuse(fmt::format("thread {} waits at {}:{}, others of its {} at line {}", Now().thread, caller.file_name(),
                       caller.line(), n == kWarp ? "warp" : "block", meeting.caller.line()));
  }
  const int64_t mine = meeting.round;
  if (++meeting.arrived == n) {
    meeting.arrived = 0;
    ++meeting.round;
    Now().progress = true;
    return true;
  }
  while (meeting.round == mine) Yield();
  return false;
}

void RunFiber() {
  while (true) {
    Block& b = Now();
    (*b.body)();
    b.fibers[b.thread].done = true;
    b.progress = true;
    Yield();
  }
}

void Resume(int thread) {
  Block& b = Now();
  b.thread = thread;
  if (_setjmp(b.scheduler) != 0) return;
  Fiber& fiber = b.fibers[thread];
  if (fiber.stack == nullptr) fiber.stack = std::make_unique<uint8_t[]>(kStackBytes);
  watched = {b.watch, fiber.stack.get(), kStackBytes, thread};
  if (fiber.started) _longjmp(fiber.at, 1);
  fiber.started = true;
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, RunFiber, 0);
  setcontext(&fiber.context);
}

}  // namespace

int ThreadIdx() { return Now().thread; }
int NumThreads() { return Now().n_threads; }
int BlockIdx() { return static_cast<int>(Now().x); }
int BlockIdxY() { return static_cast<int>(Now().y); }
int BlockIdxZ() { return static_cast<int>(Now().z); }
int NumBlocks() { return static_cast<int>(Now().n_x); }
uint8_t* SharedMemory() {
  return reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(Now().shared.data()) + 15) / 16 * 16);
}

void Barrier(Where caller) {
  Block& b = Now();
  if (Meet(b.n_threads, b.barrier, caller)) WatchBarrier();
}

void WarpBarrier(Where caller) {
  const int warp = ThreadIdx() / kWarp;
  if (Meet(kWarp, Now().warps[warp].barrier, caller)) WatchWarpBarrier(warp);
}

void Exchange(const void* mine, int n_bytes, Where caller) {
  Block& b = Now();
  Warp& warp = b.warps[b.thread / kWarp];
  // Two sets of slots: a lane that reaches the next exchange early does not overwrite values that others still read.
  std::memcpy(warp.slots[warp.exchange.round % 2][b.thread % kWarp], mine, static_cast<size_t>(n_bytes));
  Meet(kWarp, warp.exchange, caller);
}

const void* FromLane(int lane) {
  Block& b = Now();
  const Warp& warp = b.warps[b.thread / kWarp];
  return warp.slots[(warp.exchange.round - 1) % 2][lane];
}

float ShuffleXor(float value, int lanes, Where caller) {
  Exchange(&value, 4, caller);
  std::memcpy(&value, FromLane((ThreadIdx() % kWarp) ^ lanes), 4);
  return value;
}

int ShuffleXor(int value, int lanes, Where caller) {
  Exchange(&value, 4, caller);
  std::memcpy(&value, FromLane((ThreadIdx() % kWarp) ^ lanes), 4);
  return value;
}

void ExchangeRows(uint32_t out[4], const uint4& mine, bool transposed, Where caller) {
  const uint4 row = mine;
  Exchange(&row, sizeof(row), caller);
  const int lane = ThreadIdx() % kWarp, g = lane / 4, t = lane % 4;
  for (int j = 0; j < 4; ++j) {
    uint16_t halves[2];
    for (int i = 0; i < 2; ++i) {
      const void* from = FromLane(8 * j + (transposed ? 2 * t + i : g));
      std::memcpy(&halves[i], static_cast<const uint8_t*>(from) + 2 * (transposed ? g : 2 * t + i), 2);
    }
    out[j] = static_cast<uint32_t>(halves[0]) | static_cast<uint32_t>(halves[1]) << 16;
  }
}

void BeginCopy(const PendingCopy& copy) {
  Fiber& fiber = Now().fibers[Now().thread];
  fiber.copies.push_back(copy);
  ++fiber.ungrouped;
}

void CommitCopies() {
  Fiber& fiber = Now().fibers[Now().thread];
  fiber.groups.push_back(fiber.ungrouped);
  fiber.ungrouped = 0;
}

bool EndCopy(int n_pending, PendingCopy* copy) {
  Fiber& fiber = Now().fibers[Now().thread];
  while (std::ssize(fiber.groups) > n_pending && fiber.groups.front() == 0) fiber.groups.pop_front();
  if (std::ssize(fiber.groups) <= n_pending) return false;
  *copy = fiber.copies.front();
  fiber.copies.pop_front();
  --fiber.groups.front();
  return true;
}

void AtomicMax(uint32_t* to, uint32_t value) { *to = value > *to ? value : *to; }

int Dot4(uint32_t a, uint32_t b, int sum) {
  for (int i = 0; i < 32; i += 8) sum += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return sum;
}

namespace {

struct Operands {
  uint32_t a[4], b[2];
};

// Calls add(i, row, column) for the lane's four elements of c.
template <typename Fn>
void ForOwned(const Fn& add) {
  const int g = ThreadIdx() % 32 / 4, t = ThreadIdx() % 4;
  for (int i = 0; i < 4; ++i) add(i, g + (i >= 2 ? 8 : 0), 2 * t + i % 2);
}

}  // namespace

void MmaS8(int c[4], const uint32_t a[4], const uint32_t b[2], Where caller) {
  const Operands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  Exchange(&mine, sizeof(mine), caller);
  ForOwned([&](int i, int row, int column) {
    for (int k = 0; k < 32; k += 4) {
      const auto& left = *static_cast<const Operands*>(FromLane(row % 8 * 4 + k % 16 / 4));
      const auto& right = *static_cast<const Operands*>(FromLane(column * 4 + k % 16 / 4));
      c[i] = Dot4(left.a[row / 8 + k / 16 * 2], right.b[k / 16], c[i]);
    }
  });
}

void MmaF16(float c[4], const uint32_t a[4], const uint32_t b[2], Where caller) {
  const Operands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  Exchange(&mine, sizeof(mine), caller);
  ForOwned([&](int i, int row, int column) {
    double sum = c[i];
    for (int k = 0; k < 16; ++k) {
      const auto& left = *static_cast<const Operands*>(FromLane(row % 8 * 4 + k % 8 / 2));
      const auto& right = *static_cast<const Operands*>(FromLane(column * 4 + k % 8 / 2));
      const auto half = [&](uint32_t word) { return HalfToFloat(static_cast<uint16_t>(word >> (k % 2 * 16))); };
      sum += static_cast<double>(half(left.a[row / 8 + k / 8 * 2])) * half(right.b[k / 8]);
    }
    c[i] = static_cast<float>(sum);
  });
}

Status RunGrid(Grid grid, int threads, int64_t shared_bytes, const std::function<void()>& body) {
  if (grid.x * grid.y * grid.z == 0) return Status();
  if (threads < 1 || threads > kMaxThreads || shared_bytes > kSharedLimit || grid.y > 65535 || grid.z > 65535) {
    return Internal("twin: a launch of {} threads, {} bytes of shared memory, grid {} x {} x {}", threads, shared_bytes,
                    grid.x, grid.y, grid.z);
  }
  Block& b = Now();
  b.body = &body;
  b.n_threads = threads;
  b.n_x = grid.x;
  b.watch = b.n_launches++ % watch_one_in == 0;
  WatchLaunch();
  // Poisoned for every block: shared memory is initially undefined.
  for (b.z = 0; b.z < grid.z; ++b.z) {
    for (b.y = 0; b.y < grid.y; ++b.y) {
      for (b.x = 0; b.x < grid.x; ++b.x) {
        b.shared.assign(static_cast<size_t>(shared_bytes) + 16 + kFence, 0xff);
        for (int t = 0; t < threads; ++t) {
          b.fibers[t].done = false;
          b.fibers[t].copies.clear();
          b.fibers[t].groups.clear();
          b.fibers[t].ungrouped = 0;
        }
        b.barrier.arrived = 0;
        for (Warp& warp : b.warps) warp.exchange.arrived = warp.barrier.arrived = 0;
        WatchBlock(SharedMemory(), shared_bytes);
        // Every other round in reverse: the order of threads then cannot hide a missing barrier.
        int n_left = threads;
        for (int64_t pass = 0; n_left > 0; ++pass) {
          b.progress = false;
          n_left = 0;
          for (int i = 0; i < threads; ++i) {
            const int t = pass % 2 == 0 ? i : threads - 1 - i;
            if (!b.fibers[t].done) Resume(t);
            n_left += !b.fibers[t].done;
          }
          if (n_left > 0 && !b.progress) {
            // The fibers wait forever: they are abandoned, with their stacks.
            for (int t = 0; t < threads; ++t) b.fibers[t].started = false;
            return Internal("twin: {} of {} threads wait at a barrier or shuffle that the others never reach", n_left,
                            threads);
          }
        }
        if (const std::string problem = TakeProblem(); !problem.empty()) {
          return Internal("twin: block ({}, {}, {}), {}", b.x, b.y, b.z, problem);
        }
        for (int i = 0; i < kFence; ++i) {
          if (SharedMemory()[shared_bytes + i] != 0xff) return Internal("twin: a write beyond the shared memory");
        }
      }
    }
  }
  return Status();
}

}  // namespace weir::twin
