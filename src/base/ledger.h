// SPDX-License-Identifier: Apache-2.0
// The byte ledger: a budget that is fixed before the first token, and the only way to memory.
//
// Every buffer of a session holds a move-only Reservation, made before the bytes are allocated; the destructor releases
// them. Over budget is an ordinary error with figures in it (kOverBudget), never a crash. A Ledger is not tied to any
// allocator: base/memory.h turns a reservation into touched pages on the host, a device backend into device memory.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"

namespace weir {

// The owner of the bytes. Keep it short: reports print one line per tag.
enum class MemTag { kWeights, kKv, kMeta, kWorkspace, kLogits, kVision, kOther };
inline constexpr int kNumMemTags = 7;
const char* MemTagName(MemTag tag);

class Ledger;

// A share of a ledger's budget. Empty after a move.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Release(); }

  int64_t bytes() const { return bytes_; }
  void Release();

 private:
  friend class Ledger;
  Reservation(Ledger* ledger, MemTag tag, int64_t bytes) : ledger_(ledger), tag_(tag), bytes_(bytes) {}
  Ledger* ledger_ = nullptr;
  MemTag tag_ = MemTag::kOther;
  int64_t bytes_ = 0;
};

// Thread-safe. Must outlive its reservations.
class Ledger {
 public:
  static constexpr int64_t kUnlimited = INT64_MAX;
  explicit Ledger(int64_t budget_bytes = kUnlimited) : budget_bytes_(budget_bytes) {}
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // kOverBudget when used() + bytes would exceed the budget; kInvalidArgument for a negative count.
  Result<Reservation> Reserve(MemTag tag, int64_t bytes);

  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t used_bytes() const;
  int64_t used_bytes(MemTag tag) const;
  int64_t peak_bytes() const;

  // Test hook: the n-th Reserve() from now (1 = the next) is refused as if the budget were full; 0 turns it off.
  void FailNth(int n);

 private:
  friend class Reservation;
  void GiveBack(MemTag tag, int64_t bytes);

  const int64_t budget_bytes_;
  mutable std::mutex mutex_;
  std::array<int64_t, kNumMemTags> used_by_tag_{};
  int64_t used_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  int fail_nth_ = 0;
};

}  // namespace weir
