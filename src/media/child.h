// SPDX-License-Identifier: Apache-2.0
// A child process whose output is read: the decoders of strangers' files run in it and never in ours.
//
// No shell: the program gets an argument vector. It has its own process group, and what it may spend is limited: wall
// time, time without a byte, processor time, memory. A child that spends more is killed (SIGKILL, with everything it
// started) and the next call says so. Destroying a Child ends it and leaves no zombie behind.
//
// Not thread-safe; one reader.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace weir {

// 0: no limit.
struct ChildLimits {
  int64_t wall_ms = 0;       // from the start to the end
  int64_t stall_ms = 0;      // from a call of Read() to its first byte
  int64_t cpu_s = 0;         // processor time
  int64_t memory_bytes = 0;  // address space
};

class Child {
 public:
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  // Starts argv[0], looked up as a shell would where it has no slash. `stdin_fd` becomes its standard input and stays
  // the caller's; -1: none. kNotFound when there is no such program, kIo when the system refuses.
  static Result<std::unique_ptr<Child>> Start(const std::vector<std::string>& argv, int stdin_fd,
                                              const ChildLimits& limits);

  // Blocks until at least one byte of standard output is there, gives at most n; 0 at its end. kIo when a limit was
  // passed, kCancelled when `*stop` became true (looked at every 50 ms); the child is then dead.
  Result<int64_t> Read(uint8_t* to, int64_t n, const std::atomic<bool>* stop = nullptr);

  // Waits for the child's end, which the wall limit (or 5 s) bounds. Ok when it exited with 0; kCorrupt with the first
  // line that it wrote to standard error when not; kIo when a limit ended it. Call it once, after Read() gave 0.
  Status Finish();

  // The first line that it wrote to standard error so far, without control characters; empty: none.
  std::string Complaint() const;

 private:
  Child() = default;
  // Waits for bytes on either pipe until `until`; keeps what comes on standard error. False when the time passed.
  bool Poll(Clock::time_point until);
  void DrainErrors();
  void Kill();
  // Takes the exit status if there is one. True once the child is gone.
  bool Reap(bool wait);
  Status Failure() const;

  std::string name_;
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  bool readable_ = false;  // `out_` has bytes or has ended
  int wait_status_ = 0;
  int64_t cpu_ms_ = 0;  // processor time it used, once it is gone
  ChildLimits limits_;
  Clock::time_point started_;
  std::string errors_;  // the beginning of standard error, bounded
};

}  // namespace weir
