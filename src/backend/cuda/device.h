// SPDX-License-Identifier: Apache-2.0
// A device's memory, its one stream of work, and staging of small host arrays for kernels.
//
// The parts that differ are implemented twice, chosen by the namespace: device.cu for CUDA, twin/device.cc for the twin
// on the host. In the twin the host cannot access device memory: an access without Copy() crashes at once. staging.cu
// is shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/grid.h"
#include "backend/cuda/stream.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"

namespace weir::WEIR_GPU {

class Device {
 public:
  // The first device of the machine. kUnsupported when there is none that can run this build's kernels; the message
  // says why. The device object's own memory is reserved in `ledger`, which outlives it. Without `graphs`, it never
  // records a pass.
  static Result<std::unique_ptr<Device>> Open(Ledger& ledger, bool graphs = true);
  ~Device();

  const std::string& name() const { return name_; }
  int n_multiprocessors() const { return n_multiprocessors_; }
  int64_t AvailableBytes() const;

  // As in Backend.
  Result<Buffer> Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access access);
  void Copy(void* to, const void* from, int64_t n_bytes);
  void Synchronise();
  // A pass of up to kFewRows rows is recorded: there, launching kernels costs more than running them.
  void BeginPass(int64_t n_rows);
  void EndPass() { stream_.Send(); }

  // The access of the device allocation at this address; nullopt for other memory.
  std::optional<Access> AccessOf(const void* address) const;
  bool Owns(const void* address) const { return AccessOf(address).has_value(); }
  // Returns `address`, which must belong to the device: otherwise the stream fails, which is easier to diagnose than a
  // failing kernel.
  template <typename T>
  T* Mine(T* address) {
    if (address != nullptr && !Owns(address)) stream_.Fail(Internal("an operation on memory that is not the device's"));
    return address;
  }

  // A device copy of n host elements for the kernels launched next. The original may be reused at once; the copy is
  // valid until Synchronise(). At most kStageBytes a call. After Synchronise(), the same calls return the same
  // addresses; those of a recorded pass are one copy at its start.
  template <typename T>
  const T* Stage(const T* host, int64_t n) {
    return static_cast<const T*>(StageBytes(host, n * static_cast<int64_t>(sizeof(T))));
  }
  // Bytes that an array of n bytes takes there.
  static constexpr int64_t StagedBytes(int64_t n_bytes) { return (n_bytes + 63) / 64 * 64; }
  static constexpr int64_t kStageBytes = int64_t{16} << 20;
  // Waits if the staging memory has less than this many bytes left: arrays staged next, up to this many bytes in total,
  // are valid for one launch. The stream fails when it is more than kStageBytes.
  void MakeStageRoom(int64_t n_bytes);

  Stream& stream() { return stream_; }
  template <typename... P, typename... A>
  void Launch(void (*kernel)(P...), Grid grid, int threads, int64_t shared_bytes, const A&... args) {
    stream_.Launch(kernel, grid, threads, shared_bytes, args...);
  }

 private:
  Device() = default;
  Status OpenStream(Ledger& ledger, bool graphs);
  const void* StageBytes(const void* host, int64_t n_bytes);
  // Ranges that do not overlap.
  void CopyApart(void* to, const void* from, int64_t n_bytes);
  // Overlapping ranges of device memory.
  void Move(uint8_t* to, const uint8_t* from, int64_t n_bytes);

  struct Memory;
  std::unique_ptr<Memory> memory_;
  Stream stream_;
  std::string name_;
  int n_multiprocessors_ = 0;
  Buffer stage_, stage_host_;  // the copies, and where the host writes them
  int64_t staged_ = 0;
  int64_t pass_staged_ = 0;  // before the recorded pass
};

}  // namespace weir::WEIR_GPU
