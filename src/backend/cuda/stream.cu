// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/stream.h"

namespace weir::WEIR_GPU {

Status Stream::ReserveGraphs(Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(recorded_, WorkList::Make(ledger));
  return graphs_.Reserve(ledger);
}

void Stream::Put(const Work& work, const Params& params) {
  if (!status_.ok()) return;
  if (recording_) {
    if (recorded_.Add(work, params)) return;
    SendPlainly();
  }
  Check(driver_.Send(work, params));
}

void Stream::Copy(void* to, const void* from, int64_t n_bytes, CopyKind kind) {
  Work work;
  work.to = to;
  work.from = from;
  work.n_bytes = n_bytes;
  work.kind = kind;
  Put(work, {});
}

void Stream::Record(void* to, const void* from, CopyKind kind) {
  if (recording_ || !graphs_.enabled()) return;
  recorded_.Clear();
  Work first;
  first.to = to;
  first.from = from;
  first.kind = kind;
  recording_ = recorded_.Add(first, {});
}

void Stream::Send() {
  if (!recording_) return;
  if (status_.ok() && graphs_.Send(recorded_)) {
    recording_ = false;
  } else {
    SendPlainly();
  }
}

void Stream::SendPlainly() {
  if (!recording_) return;
  recording_ = false;
  ++graphs_.counts().plain;
  for (int64_t i = 0; i < recorded_.size() && status_.ok(); ++i) {
    if (!recorded_.work(i).is_nothing()) Check(driver_.Send(recorded_.work(i), recorded_.ParamsOf(i)));
  }
}

void Stream::Wait() {
  SendPlainly();
  Check(driver_.Wait());
}

void* Stream::handle() {
  SendPlainly();
  return driver_.handle();
}

}  // namespace weir::WEIR_GPU
