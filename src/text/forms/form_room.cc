// SPDX-License-Identifier: Apache-2.0
#include "text/forms/form_room.h"

#include <utility>

namespace weir {

bool FormRoom::Take(int64_t bytes) {
  int64_t used = used_;
  do {
    if (bytes > bytes_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  for (int64_t peak = peak_; peak < used + bytes && !peak_.compare_exchange_weak(peak, used + bytes);) {
  }
  return true;
}

void FormRoom::SetReclaim(std::function<void()> reclaim) {
  const std::lock_guard lock(reclaim_mutex_);
  reclaim_ = std::move(reclaim);
}

void FormRoom::Reclaim() {
  const std::lock_guard lock(reclaim_mutex_);
  if (reclaim_) reclaim_();
}

FormShare& FormShare::operator=(FormShare&& other) noexcept {
  if (this == &other) return *this;
  Shrink(0);
  room_ = std::move(other.room_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

bool FormShare::Cover(int64_t bytes) {
  if (bytes <= bytes_ || room_ == nullptr) return true;
  // In steps, so that the room is seldom asked; where it is nearly full, without.
  constexpr int64_t kStep = 64 << 10;
  const int64_t rounded = (bytes + kStep - 1) / kStep * kStep;
  for (const int64_t want : {rounded, bytes}) {
    if (!room_->Take(want - bytes_)) continue;
    bytes_ = want;
    return true;
  }
  return false;
}

void FormShare::Shrink(int64_t bytes) {
  if (room_ == nullptr || bytes >= bytes_) return;
  room_->GiveBack(bytes_ - bytes);
  bytes_ = bytes;
}

FormWork::FormWork(FormRoom* room) : room_(room) {
  if (room == nullptr) return;
  turn_ = std::unique_lock(room->making());
  taken_ = room->Take(room->work_bytes());
  if (!taken_) {
    room->Reclaim();
    taken_ = room->Take(room->work_bytes());
  }
  if (taken_) return;
  status_ = OverBudget("to make a form takes {} bytes; of the {} that are kept for forms others have {}",
                       room->work_bytes(), room->bytes(), room->used_bytes());
}

FormWork::~FormWork() {
  if (taken_) room_->GiveBack(room_->work_bytes());
}

Status NoRoomForForm(const FormRoom& room, int64_t bytes) {
  if (bytes > room.bytes()) {
    return InvalidArgument(
        "the form takes {} bytes, more than the {} that are kept for forms; keep more, or ask for less", bytes,
        room.bytes());
  }
  return OverBudget("the form takes {} bytes; of the {} that are kept for forms others have {}", bytes, room.bytes(),
                    room.used_bytes());
}

Status CheckFormBytes(int64_t bytes) {
  if (bytes == 0 || bytes >= kLeastFormBytes) return Status();
  return InvalidArgument("{} bytes for forms: expected 0, for none, or at least {}", bytes, kLeastFormBytes);
}

}  // namespace weir
