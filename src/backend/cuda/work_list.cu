// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/work_list.h"

#include <cstring>

namespace weir::WEIR_GPU {
namespace {

// The largest alignment of kernel parameters.
int64_t Aligned(int64_t n_bytes) { return (n_bytes + 15) / 16 * 16; }

uint64_t Mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29); }

}  // namespace

Result<WorkList> WorkList::Make(Ledger& ledger) {
  WorkList out;
  WEIR_ASSIGN_OR_RETURN(out.memory_,
                        HostBuffer::Allocate(ledger, MemTag::kWorkspace,
                                             kMaxWork * static_cast<int64_t>(sizeof(Entry)) + kMaxParamBytes));
  out.Clear();
  return Result<WorkList>(std::move(out));
}

void WorkList::Clear() {
  size_ = 0;
  used_ = 0;
  shape_ = 1;
}

bool WorkList::Add(const Work& work, const Params& params) {
  const int64_t first = Aligned(int64_t{params.n} * 8);
  int64_t n_bytes = first;
  for (int32_t p = 0; p < params.n; ++p) n_bytes += Aligned(params.param[p].n_bytes);
  if (size_ == kMaxWork || used_ + n_bytes > kMaxParamBytes) return false;
  entries()[size_++] = {work, nullptr, params.n, used_, static_cast<int32_t>(n_bytes)};
  uint8_t* block = this->params() + used_;
  // Bytes between parameters are compared too.
  std::memset(block, 0, static_cast<size_t>(n_bytes));
  auto at = static_cast<int32_t>(first);
  for (int32_t p = 0; p < params.n; ++p) {
    const int32_t place[2] = {at, static_cast<int32_t>(params.param[p].n_bytes)};
    std::memcpy(block + int64_t{p} * 8, place, 8);
    std::memcpy(block + at, params.param[p].data, static_cast<size_t>(place[1]));
    at += static_cast<int32_t>(Aligned(place[1]));
  }
  used_ += static_cast<int32_t>(n_bytes);
  shape_ = Mix(Mix(shape_, reinterpret_cast<uintptr_t>(work.kernel)), static_cast<uint64_t>(work.kind));
  return true;
}

void WorkList::Assign(const WorkList& other) {
  size_ = other.size_;
  used_ = other.used_;
  shape_ = other.shape_;
  std::memcpy(entries(), other.entries(), static_cast<size_t>(size_) * sizeof(Entry));
  std::memcpy(params(), other.params(), static_cast<size_t>(used_));
}

void WorkList::Assign(int64_t i, const WorkList& other) {
  Entry& mine = entries()[i];
  const Entry& theirs = other.entries()[i];
  mine.work = theirs.work;
  std::memcpy(params() + mine.at, other.params() + theirs.at, static_cast<size_t>(mine.n_bytes));
}

Params WorkList::ParamsOf(int64_t i) const {
  const Entry& entry = entries()[i];
  const uint8_t* block = params() + entry.at;
  Params out;
  for (; out.n < entry.n_params; ++out.n) {
    int32_t place[2];
    std::memcpy(place, block + int64_t{out.n} * 8, 8);
    out.param[out.n] = {block + place[0], place[1]};
  }
  return out;
}

bool WorkList::HasShapeOf(const WorkList& other) const {
  if (size_ != other.size_ || shape_ != other.shape_) return false;
  for (int64_t i = 0; i < size_; ++i) {
    const Work &a = work(i), &b = other.work(i);
    if (a.kernel != b.kernel || a.kind != b.kind || a.is_nothing() != b.is_nothing()) return false;
  }
  return true;
}

bool WorkList::IsSame(int64_t i, const WorkList& other) const {
  const Work &a = work(i), &b = other.work(i);
  if (a.is_nothing()) return true;  // it has no node
  if (a.kernel == nullptr) return a.to == b.to && a.from == b.from && a.n_bytes == b.n_bytes;
  const Entry &mine = entries()[i], &theirs = other.entries()[i];
  return a.grid.x == b.grid.x && a.grid.y == b.grid.y && a.grid.z == b.grid.z && a.threads == b.threads &&
         a.shared_bytes == b.shared_bytes &&
         std::memcmp(params() + mine.at, other.params() + theirs.at, static_cast<size_t>(mine.n_bytes)) == 0;
}

}  // namespace weir::WEIR_GPU
