// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "backend/cuda/twin/watch.h"

namespace weir::twin {
namespace {

constexpr int64_t kArenaBytes = int64_t{1} << 30;  // address space; only used pages take memory
constexpr int64_t kHugePageBytes = int64_t{2} << 20;
int64_t HugePageRound(int64_t bytes) { return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

}  // namespace

// One range of address space, accessible only to kernels and copies. Shared memory is a separate mapping.
struct Device::Memory {
  uint8_t* mapped = nullptr;
  uint8_t* arena = nullptr;  // in it
  int64_t used = 0;
  int n_open = 0;
  std::map<uintptr_t, std::pair<int64_t, Access>> ranges;  // by address: size, access

  bool InArena(const void* address) const {
    const auto* a = static_cast<const uint8_t*>(address);
    return a >= arena && a < arena + kArenaBytes;
  }
  // Whole huge pages: with small ones, this takes longer than the kernels do.
  void Protect(int protection) { mprotect(arena, static_cast<size_t>(HugePageRound(used)), protection); }
};

namespace {

// Makes the arena accessible for its lifetime.
template <typename Memory>
class Open {
 public:
  explicit Open(Memory& memory) : memory_(memory) {
    if (memory_.n_open++ == 0 && memory_.used > 0) memory_.Protect(PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (--memory_.n_open == 0 && memory_.used > 0) memory_.Protect(PROT_NONE);
  }

 private:
  Memory& memory_;
};

}  // namespace

Result<std::unique_ptr<Device>> Device::Open(Ledger& ledger, bool graphs) {
  std::unique_ptr<Device> out(new Device);
  out->memory_ = std::make_unique<Memory>();
  void* mapped =
      mmap(nullptr, kArenaBytes + kHugePageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return IoError("twin: no address space");
  out->memory_->mapped = static_cast<uint8_t*>(mapped);
  out->memory_->arena = reinterpret_cast<uint8_t*>(HugePageRound(reinterpret_cast<intptr_t>(mapped)));
  madvise(out->memory_->arena, kArenaBytes, MADV_HUGEPAGE);
  out->name_ = "twin";
  out->n_multiprocessors_ = 4;
  WEIR_RETURN_IF_ERROR(out->stream_.Open());
  WEIR_RETURN_IF_ERROR(out->OpenStream(ledger, graphs));
  return out;
}

Device::~Device() {
  Synchronise();
  stage_ = Buffer();
  stage_host_ = Buffer();
  if (memory_ != nullptr && memory_->mapped != nullptr) munmap(memory_->mapped, kArenaBytes + kHugePageBytes);
}

int64_t Device::AvailableBytes() const { return std::max<int64_t>(0, kArenaBytes - memory_->used - kPageBytes); }

Result<Buffer> Device::Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access access) {
  if (bytes < 0) return InvalidArgument("cannot allocate {} bytes for {}", bytes, MemTagName(tag));
  WEIR_ASSIGN_OR_RETURN(Reservation reservation, ledger.Reserve(tag, PageRound(bytes)));
  const int64_t size = reservation.bytes();
  if (size == 0) return Buffer();
  uint8_t* data = nullptr;
  if (access == Access::kDevice) {
    // Never freed: a test's device is short-lived.
    if (memory_->used + size + kPageBytes > kArenaBytes) return OverBudget("twin: the arena is full");
    Synchronise();
    data = memory_->arena + memory_->used;
    memory_->used += size + kPageBytes;  // a page between two allocations belongs to neither
    memory_->Protect(PROT_NONE);
  } else {
    void* mapped = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return IoError("twin: no memory");
    data = static_cast<uint8_t*>(mapped);
  }
  memory_->ranges[reinterpret_cast<uintptr_t>(data)] = {size, access};
  AllowMemory(data, bytes);  // kernels may not touch the rest of the last page
  return Buffer(data, std::move(reservation), this, [](void* owner, uint8_t* address) {
    auto& device = *static_cast<Device*>(owner);
    device.Synchronise();
    ForbidMemory(address);
    const auto at = device.memory_->ranges.find(reinterpret_cast<uintptr_t>(address));
    const auto size = static_cast<size_t>(at->second.first);
    if (device.memory_->InArena(address)) {
      // Later reads of it see NaN.
      const twin::Open<Memory> open(*device.memory_);
      std::memset(address, 0xff, size);
    } else {
      munmap(address, size);
    }
    device.memory_->ranges.erase(at);
  });
}

std::optional<Access> Device::AccessOf(const void* address) const {
  const uintptr_t a = reinterpret_cast<uintptr_t>(address);
  auto at = memory_->ranges.upper_bound(a);
  if (at == memory_->ranges.begin()) return std::nullopt;
  --at;
  if (a >= at->first + static_cast<uintptr_t>(at->second.first)) return std::nullopt;
  return at->second.second;
}

void Device::Copy(void* to, const void* from, int64_t n_bytes) {
  if (n_bytes > 0 && to != from) CopyApart(to, from, n_bytes);  // the driver's copies may overlap
}

void Device::Synchronise() {
  if (memory_ == nullptr) return;
  const twin::Open<Memory> open(*memory_);
  stream_.Wait();
  staged_ = 0;
}

}  // namespace weir::twin
