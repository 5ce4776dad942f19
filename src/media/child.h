// SPDX-License-Identifier: Apache-2.0
// A child process whose output is read: decoders of untrusted files run in child processes, never in this one.
//
// No shell: the program gets an argument vector. It has its own process group and resource limits: wall time, time
// without output, CPU time, memory. A child that exceeds one is killed (SIGKILL, with its whole process group) and the
// next call returns an error. Destroying a Child kills it and leaves no zombie.
//
// Not thread-safe; one reader.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/sandbox.h"
#include "base/status.h"

namespace weir {

// 0: no limit.
struct ChildLimits {
  int64_t wall_ms = 0;       // from start to end
  int64_t stall_ms = 0;      // from a call of Read() to its first byte
  int64_t cpu_s = 0;         // CPU time
  int64_t memory_bytes = 0;  // address space
  int64_t ending_ms = 5000;  // from the end of its output to its own
};

enum class ChildErrors {
  kKept,     // the beginning of standard error, for Complaint()
  kAsOutput  // it is the same as standard output
};

// A variable of the environment that children get, which is this process's own; empty where it is not set.
std::string ChildVariable(std::string_view name);

class Child {
 public:
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  // Starts argv[0], looked up in PATH if it has no slash. `stdin_fd` becomes its standard input and is still owned by
  // the caller; -1: none. With a sandbox it has no other rights, as far as the kernel can do that. kNotFound when there
  // is no such program, kIo when the system refuses.
  static Result<std::unique_ptr<Child>> Start(const std::vector<std::string>& argv, int stdin_fd,
                                              const ChildLimits& limits, ChildErrors errors = ChildErrors::kKept,
                                              const Sandbox* sandbox = nullptr);

  // Blocks until at least one byte of standard output is available, returns at most n bytes; 0 at its end. kIo when a
  // limit was exceeded, kCancelled when `*stop` became true (polled every 50 ms); the child is then dead.
  Result<int64_t> Read(uint8_t* to, int64_t n, const std::atomic<bool>* stop = nullptr);

  // Waits for the child to exit, bounded by wall_ms and ending_ms. Ok when it exited with 0; otherwise kCorrupt with
  // the first line that it wrote to standard error; kIo when a limit ended it, kCancelled when `*stop` did, as for
  // Read(). Call it once, after Read() returned 0.
  Status Finish(const std::atomic<bool>* stop = nullptr);

  // The first line that it has written to standard error so far, without control characters and without addresses of
  // its memory, which ffmpeg prints; may be empty.
  std::string Complaint() const;

 private:
  Child() = default;
  // Waits for bytes on either pipe until `until`; stores standard error. False on timeout.
  bool Poll(Clock::time_point until);
  void DrainErrors();
  void Kill();
  // Takes the exit status if there is one. True once the child is gone.
  bool Reap(bool wait);
  Status Failure() const;

  std::string name_;
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  bool readable_ = false;  // `out_` has bytes or is at its end
  int wait_status_ = 0;
  int64_t cpu_ms_ = 0;  // CPU time it used, once it has exited
  ChildLimits limits_;
  Clock::time_point started_;
  std::string errors_;  // the beginning of standard error, bounded
};

}  // namespace weir
