#include "backend/cuda/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace weir::twin {
namespace {

constexpr int64_t kArenaBytes = int64_t{1} << 30;  // addresses; only what is used has memory

}  // namespace

// One piece of address space, closed to everybody but kernels and copies. Shared memory is a mapping of its own.
struct Device::Memory {
  uint8_t* arena = nullptr;
  int64_t used = 0;
  int n_open = 0;
  std::map<uintptr_t, int64_t> ranges;

  bool InArena(const void* address) const {
    const auto* a = static_cast<const uint8_t*>(address);
    return a >= arena && a < arena + kArenaBytes;
  }
  void Protect(int protection) { mprotect(arena, static_cast<size_t>(used), protection); }
};

namespace {

// Opens the arena for its lifetime.
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

Result<std::unique_ptr<Device>> Device::Open(Ledger& ledger) {
  std::unique_ptr<Device> out(new Device);
  out->memory_ = std::make_unique<Memory>();
  void* arena = mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) return IoError("twin: no address space");
  out->memory_->arena = static_cast<uint8_t*>(arena);
  out->name_ = "twin";
  out->n_multiprocessors_ = 4;
  WEIR_ASSIGN_OR_RETURN(out->stage_, out->Allocate(ledger, MemTag::kWorkspace, kStageBytes, Access::kDevice));
  return out;
}

Device::~Device() {
  Synchronise();
  stage_ = Buffer();
  if (memory_ != nullptr && memory_->arena != nullptr) munmap(memory_->arena, kArenaBytes);
}

int64_t Device::AvailableBytes() const { return kArenaBytes - memory_->used; }

Result<Buffer> Device::Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access access) {
  if (bytes < 0)
    return InvalidArgument("cannot allocate %lld bytes for %s", static_cast<long long>(bytes), MemTagName(tag));
  WEIR_ASSIGN_OR_RETURN(Reservation reservation, ledger.Reserve(tag, PageRound(bytes)));
  const int64_t size = reservation.bytes();
  if (size == 0) return Buffer();
  uint8_t* data = nullptr;
  if (access == Access::kDevice) {
    // Never given back: a test's device lives shortly.
    if (memory_->used + size > kArenaBytes) return OverBudget("twin: the arena is full");
    Synchronise();
    data = memory_->arena + memory_->used;
    memory_->used += size;
    memory_->Protect(PROT_NONE);
  } else {
    void* mapped = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return IoError("twin: no memory");
    data = static_cast<uint8_t*>(mapped);
  }
  memory_->ranges[reinterpret_cast<uintptr_t>(data)] = size;
  return Buffer(data, std::move(reservation), this, [](void* owner, uint8_t* address) {
    auto& device = *static_cast<Device*>(owner);
    device.Synchronise();
    const auto at = device.memory_->ranges.find(reinterpret_cast<uintptr_t>(address));
    if (!device.memory_->InArena(address)) munmap(address, static_cast<size_t>(at->second));
    device.memory_->ranges.erase(at);
  });
}

bool Device::Owns(const void* address) const {
  const uintptr_t a = reinterpret_cast<uintptr_t>(address);
  auto at = memory_->ranges.upper_bound(a);
  if (at == memory_->ranges.begin()) return false;
  --at;
  return a < at->first + static_cast<uintptr_t>(at->second);
}

void Device::Copy(void* to, const void* from, int64_t n_bytes) {
  if (n_bytes <= 0 || to == from) return;
  stream_.Queue([=] { std::memmove(to, from, static_cast<size_t>(n_bytes)); });
  if (!Owns(to) || !Owns(from)) Synchronise();
}

void Device::Synchronise() {
  if (memory_ == nullptr) return;
  const twin::Open<Memory> open(*memory_);
  stream_.Run();
  staged_ = 0;
}

const void* Device::StageBytes(const void* host, int64_t n_bytes) {
  const int64_t room = (n_bytes + 63) / 64 * 64;
  if (room > kStageBytes) {
    stream_.Fail(Internal("a list of %lld bytes for the device", static_cast<long long>(n_bytes)));
    return stage_.data();
  }
  if (staged_ + room > kStageBytes) Synchronise();
  uint8_t* const copy = stage_.data() + staged_;
  const auto* bytes = static_cast<const uint8_t*>(host);
  stream_.Queue(
      [copy, kept = std::vector<uint8_t>(bytes, bytes + n_bytes)] { std::memcpy(copy, kept.data(), kept.size()); });
  staged_ += room;
  return copy;
}

}  // namespace weir::twin
