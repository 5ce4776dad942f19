// SPDX-License-Identifier: Apache-2.0
// Host memory behind a reservation: whole pages, zeroed and touched at once. The process holds the bytes as soon as the
// ledger counts them, and a machine without enough memory fails at the start, not in mid-stream.
#pragma once

#include <cstdint>
#include <utility>

#include "base/ledger.h"
#include "base/status.h"

namespace weir {

class ThreadPool;

inline constexpr int64_t kPageBytes = 4096;
// Rounds up to what Allocate() reserves for `bytes`.
inline int64_t PageRound(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Memory the system can still give this process without swapping, from /proc/meminfo and the control group; INT64_MAX
// when neither can be read.
int64_t AvailableHostBytes();

// Move-only block of zeroed memory, aligned to a page.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  // Reserves PageRound(bytes) in `ledger`, then maps them. kInvalidArgument for a negative count, kOverBudget when the
  // ledger or the system has too little left (checked first, because a populated mapping larger than memory would kill
  // the process), kIo when the system refuses the mapping. Zeroing takes time; a pool, which may be nullptr,
  // parallelises it.
  static Result<HostBuffer> Allocate(Ledger& ledger, MemTag tag, int64_t bytes, ThreadPool* pool = nullptr);

  uint8_t* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  int64_t bytes() const { return reservation_.bytes(); }

 private:
  void Unmap();

  uint8_t* data_ = nullptr;
  Reservation reservation_;
};

// Move-only block of memory from any device (Backend::Allocate()). On the host it is a HostBuffer. Whether the host may
// access the bytes depends on the device.
class Buffer {
 public:
  // Returns `data` to the device `owner`, which outlives the buffer.
  using FreeFn = void (*)(void* owner, uint8_t* data);

  Buffer() = default;
  Buffer(HostBuffer host) : host_(std::move(host)), data_(host_.data()) {}  // NOLINT: a HostBuffer is one
  Buffer(uint8_t* data, Reservation reservation, void* owner, FreeFn free)
      : data_(data), reservation_(std::move(reservation)), owner_(owner), free_(free) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { Free(); }

  uint8_t* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  int64_t bytes() const { return free_ != nullptr ? reservation_.bytes() : host_.bytes(); }

 private:
  void Free();

  HostBuffer host_;
  uint8_t* data_ = nullptr;
  Reservation reservation_;
  void* owner_ = nullptr;
  FreeFn free_ = nullptr;
};

}  // namespace weir
