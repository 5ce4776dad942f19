// SPDX-License-Identifier: Apache-2.0
#include "base/ledger.h"

#include <algorithm>

namespace weir {

const char* MemTagName(MemTag tag) {
  static constexpr const char* kNames[kNumMemTags] = {"weights", "kv",     "meta", "workspace",
                                                      "logits",  "vision", "other"};
  return kNames[static_cast<int>(tag)];
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    Release();
    ledger_ = std::exchange(other.ledger_, nullptr);
    tag_ = other.tag_;
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Reservation::Release() {
  if (ledger_ != nullptr) ledger_->GiveBack(tag_, bytes_);
  ledger_ = nullptr;
  bytes_ = 0;
}

Result<Reservation> Ledger::Reserve(MemTag tag, int64_t bytes) {
  if (bytes < 0) return InvalidArgument("cannot reserve {} bytes for {}", bytes, MemTagName(tag));
  std::lock_guard<std::mutex> lock(mutex_);
  const bool injected = fail_nth_ > 0 && --fail_nth_ == 0;
  if (injected || bytes > budget_bytes_ - used_bytes_) {
    return OverBudget("{} needs {} bytes, but {} of the budget of {} bytes are in use", MemTagName(tag), bytes,
                      used_bytes_, budget_bytes_);
  }
  used_bytes_ += bytes;
  used_by_tag_[static_cast<int>(tag)] += bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return Reservation(this, tag, bytes);
}

void Ledger::GiveBack(MemTag tag, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  used_bytes_ -= bytes;
  used_by_tag_[static_cast<int>(tag)] -= bytes;
}

int64_t Ledger::used_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

int64_t Ledger::used_bytes(MemTag tag) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_by_tag_[static_cast<int>(tag)];
}

int64_t Ledger::peak_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return peak_bytes_;
}

void Ledger::FailNth(int n) {
  std::lock_guard<std::mutex> lock(mutex_);
  fail_nth_ = n;
}

}  // namespace weir
