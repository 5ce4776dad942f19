// Host memory behind a reservation: whole pages, zeroed and touched at once, so that the process holds the bytes from
// the moment the ledger says so, and a machine that cannot give them refuses at the start and not in mid-stream.
#pragma once

#include <cstdint>
#include <utility>

#include "base/ledger.h"
#include "base/status.h"

namespace weir {

inline constexpr int64_t kPageBytes = 4096;
// Rounds up to what Allocate() reserves for `bytes`.
inline int64_t PageRound(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Move-only block of zeroed memory, aligned to a page.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  // Reserves PageRound(bytes) in `ledger`, then maps them. kOverBudget or kIo (the system is out of memory).
  static Result<HostBuffer> Allocate(Ledger& ledger, MemTag tag, int64_t bytes);

  uint8_t* data() const { return data_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  int64_t bytes() const { return reservation_.bytes(); }

 private:
  uint8_t* data_ = nullptr;
  Reservation reservation_;
};

}  // namespace weir
