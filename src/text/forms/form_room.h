// SPDX-License-Identifier: Apache-2.0
// Memory for forms, so much and no more: its owner has reserved it in a ledger before the first form is made.
//
// What forms keep, their networks, states and masks, takes shares of it before it exists; half of it is taken while one
// is made, whose size is limited so that this is enough (forms/form_limits.h). A share that is not there is an error of
// the form or of its answer, never of the others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/status.h"
#include "text/forms/form_limits.h"

namespace weir {

inline constexpr int64_t kDefaultFormBytes = 16 << 20;
inline constexpr int64_t kLeastFormBytes = 1 << 20;

// Thread-safe.
class FormRoom {
 public:
  explicit FormRoom(int64_t bytes) : bytes_(bytes) {}
  FormRoom(const FormRoom&) = delete;
  FormRoom& operator=(const FormRoom&) = delete;

  int64_t bytes() const { return bytes_; }
  int64_t used_bytes() const { return used_; }
  int64_t peak_bytes() const { return peak_; }
  forms::FormLimits limits() const { return forms::FormLimits::For(work_bytes()); }
  // Taken while a form is made.
  int64_t work_bytes() const { return bytes_ / 2; }

  // false: there is not as much left, and nothing was taken.
  bool Take(int64_t bytes);
  void GiveBack(int64_t bytes) { used_ -= bytes; }

  // Called when a share was refused, while no lock of a form is held: gives back what nobody needs now. To be set, and
  // taken away with nullptr, by whoever keeps forms.
  void SetReclaim(std::function<void()> reclaim);
  void Reclaim();
  // Forms of one room are made one after the other.
  std::mutex& making() { return making_; }

 private:
  const int64_t bytes_;
  std::atomic<int64_t> used_{0}, peak_{0};
  std::mutex making_, reclaim_mutex_;
  std::function<void()> reclaim_;
};

// A part of a room that grows. Without a room there is no end to it. Not thread-safe.
class FormShare {
 public:
  FormShare() = default;
  explicit FormShare(std::shared_ptr<FormRoom> room) : room_(std::move(room)) {}
  FormShare(FormShare&& other) noexcept { *this = std::move(other); }
  FormShare& operator=(FormShare&& other) noexcept;
  ~FormShare() { Shrink(0); }

  int64_t bytes() const { return bytes_; }
  // Makes it this large at least. false: the room has not as much; the share is as it was.
  bool Cover(int64_t bytes);
  // Makes it this large at most.
  void Shrink(int64_t bytes);

 private:
  std::shared_ptr<FormRoom> room_;
  int64_t bytes_ = 0;
};

// While a form is made: half of the room, in turn. Without a room: nothing.
class FormWork {
 public:
  explicit FormWork(FormRoom* room);
  ~FormWork();
  FormWork(const FormWork&) = delete;
  FormWork& operator=(const FormWork&) = delete;
  // kOverBudget: others have more than the other half.
  const Status& status() const { return status_; }

 private:
  FormRoom* const room_;
  std::unique_lock<std::mutex> turn_;
  bool taken_ = false;
  Status status_;
};

// Of a form that does not get `bytes` of the room.
Status NoRoomForForm(const FormRoom& room, int64_t bytes);
// kInvalidArgument for a size that no form fits into. 0, no forms at all, is a size.
Status CheckFormBytes(int64_t bytes);

}  // namespace weir
