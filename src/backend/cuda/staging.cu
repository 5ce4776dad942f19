// SPDX-License-Identifier: Apache-2.0
// Code that both devices share: staging host arrays for kernels, copies, recorded passes.
#include <cstring>

#include "backend/cuda/device.h"
#include "backend/cuda/matmul.h"

namespace weir::WEIR_GPU {

Status Device::OpenStream(Ledger& ledger, bool graphs) {
  WEIR_ASSIGN_OR_RETURN(stage_, Allocate(ledger, MemTag::kWorkspace, kStageBytes, Access::kDevice));
  WEIR_ASSIGN_OR_RETURN(stage_host_, Allocate(ledger, MemTag::kWorkspace, kStageBytes, Access::kShared));
  return graphs ? stream_.ReserveGraphs(ledger) : Status();
}

void Device::BeginPass(int64_t n_rows) {
  if (n_rows > kFewRows) return;
  pass_staged_ = staged_;
  stream_.Record(stage_.data() + staged_, stage_host_.data() + staged_, CopyKind::kFromHost);
}

void Device::CopyApart(void* to, const void* from, int64_t n_bytes) {
  const std::optional<Access> target = AccessOf(to), source = AccessOf(from);
  // Memory that does not belong to the device may be reused by the caller when the call returns.
  const bool wait = !target || !source;
  if (wait) stream_.SendPlainly();
  const bool to_host = target == Access::kShared, from_host = source == Access::kShared;
  stream_.Copy(to, from, n_bytes,
               to_host && from_host ? CopyKind::kInHost
               : to_host            ? CopyKind::kToHost
               : from_host          ? CopyKind::kFromHost
                                    : CopyKind::kInDevice);
  if (wait) Synchronise();
}

void Device::MakeStageRoom(int64_t n_bytes) {
  if (n_bytes > kStageBytes) {
    stream_.Fail(Internal("lists of {} bytes for the device", n_bytes));
  } else if (staged_ + n_bytes > kStageBytes) {
    Synchronise();
  }
}

const void* Device::StageBytes(const void* host, int64_t n_bytes) {
  const int64_t room = StagedBytes(n_bytes);
  if (room > kStageBytes) {
    stream_.Fail(Internal("a list of {} bytes for the device", n_bytes));
    return stage_.data();
  }
  if (staged_ + room > kStageBytes) Synchronise();
  uint8_t* const copy = stage_.data() + staged_;
  std::memcpy(stage_host_.data() + staged_, host, static_cast<size_t>(n_bytes));
  if (stream_.recording()) {
    stream_.SetFirstCopy(staged_ + n_bytes - pass_staged_);
  } else {
    stream_.Copy(copy, stage_host_.data() + staged_, n_bytes, CopyKind::kFromHost);
  }
  staged_ += room;
  return copy;
}

}  // namespace weir::WEIR_GPU
