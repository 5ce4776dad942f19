#include "backend/cuda/device.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace weir::cuda {
namespace {

constexpr int kOldestMajor = 8;  // sm_80: asynchronous copies, int8 and half matrix units as the kernels use them

Status NoDevice(const char* why) { return Unsupported("no CUDA device: %s", why); }

}  // namespace

struct Device::Memory {
  std::map<uintptr_t, std::pair<int64_t, Access>> ranges;  // address to size
};

Result<std::unique_ptr<Device>> Device::Open(Ledger& ledger) {
  int n = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&n); error != cudaSuccess)
    return NoDevice(cudaGetErrorString(error));
  if (n == 0) return NoDevice("the driver reports none");
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    return NoDevice(cudaGetErrorString(error));
  }
  if (properties.major < kOldestMajor) {
    return NoDevice(StrFormat("%s has compute capability %d.%d, this program needs %d.0", properties.name,
                              properties.major, properties.minor, kOldestMajor)
                        .c_str());
  }
  std::unique_ptr<Device> out(new Device);
  out->memory_ = std::make_unique<Memory>();
  out->name_ = StrFormat("%s, sm_%d%d", properties.name, properties.major, properties.minor);
  out->n_multiprocessors_ = properties.multiProcessorCount;
  if (const cudaError_t error = cudaStreamCreateWithFlags(&out->stream_.handle, cudaStreamNonBlocking);
      error != cudaSuccess) {
    return NoDevice(cudaGetErrorString(error));
  }
  WEIR_ASSIGN_OR_RETURN(out->stage_, out->Allocate(ledger, MemTag::kWorkspace, kStageBytes, Access::kDevice));
  WEIR_ASSIGN_OR_RETURN(out->stage_host_, out->Allocate(ledger, MemTag::kWorkspace, kStageBytes, Access::kShared));
  return Result<std::unique_ptr<Device>>(std::move(out));
}

Device::~Device() {
  Synchronise();
  stage_ = Buffer();
  stage_host_ = Buffer();
  if (stream_.handle != nullptr) cudaStreamDestroy(stream_.handle);
}

int64_t Device::AvailableBytes() const {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
}

Result<Buffer> Device::Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access access) {
  if (bytes < 0)
    return InvalidArgument("cannot allocate %lld bytes for %s", static_cast<long long>(bytes), MemTagName(tag));
  WEIR_ASSIGN_OR_RETURN(Reservation reservation, ledger.Reserve(tag, PageRound(bytes)));
  if (reservation.bytes() == 0) return Buffer();
  const size_t size = static_cast<size_t>(reservation.bytes());
  void* data = nullptr;
  // Shared memory is the host's, pinned: it is small and looked at often, and a device reads and writes it in place.
  // Memory that moves between the two (cudaMallocManaged) would do so in the middle of a token.
  const cudaError_t error = access == Access::kDevice ? cudaMalloc(&data, size) : cudaMallocHost(&data, size);
  if (error != cudaSuccess) {
    cudaGetLastError();  // told here, not by the next call
    return OverBudget("%s needs %lld bytes, the device gives none of them (%s); it has %lld left", MemTagName(tag),
                      static_cast<long long>(size), cudaGetErrorString(error),
                      static_cast<long long>(AvailableBytes()));
  }
  if (access == Access::kDevice) {
    stream_.Check(cudaMemsetAsync(data, 0, size, stream_.handle), "clearing memory");
  } else {
    std::memset(data, 0, size);
  }
  memory_->ranges[reinterpret_cast<uintptr_t>(data)] = {reservation.bytes(), access};
  return Buffer(static_cast<uint8_t*>(data), std::move(reservation), this, [](void* owner, uint8_t* address) {
    auto& device = *static_cast<Device*>(owner);
    const auto at = device.memory_->ranges.find(reinterpret_cast<uintptr_t>(address));
    device.Synchronise();
    device.stream_.Check(at->second.second == Access::kDevice ? cudaFree(address) : cudaFreeHost(address),
                         "freeing memory");
    device.memory_->ranges.erase(at);
  });
}

bool Device::Owns(const void* address) const {
  const uintptr_t a = reinterpret_cast<uintptr_t>(address);
  auto at = memory_->ranges.upper_bound(a);
  if (at == memory_->ranges.begin()) return false;
  --at;
  return a < at->first + static_cast<uintptr_t>(at->second.first);
}

void Device::Copy(void* to, const void* from, int64_t n_bytes) {
  if (n_bytes <= 0 || to == from) return;
  auto* target = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  if (target < source + n_bytes && source < target + n_bytes) return Move(target, source, n_bytes);
  stream_.Check(cudaMemcpyAsync(to, from, static_cast<size_t>(n_bytes), cudaMemcpyDefault, stream_.handle), "a copy");
  // Memory that the device does not know is the caller's again when the call returns.
  if (!Owns(to) || !Owns(from)) Synchronise();
}

void Device::Move(uint8_t* to, const uint8_t* from, int64_t n_bytes) {
  // Piece by piece through the staging memory, from the end that is written first.
  Synchronise();
  const auto copy = [this](void* target, const void* source, int64_t n) {
    stream_.Check(cudaMemcpyAsync(target, source, static_cast<size_t>(n), cudaMemcpyDefault, stream_.handle), "a move");
  };
  for (int64_t done = 0; done < n_bytes; done += kStageBytes) {
    const int64_t n = std::min(kStageBytes, n_bytes - done);
    const int64_t at = to < from ? done : n_bytes - done - n;
    copy(stage_.data(), from + at, n);
    copy(to + at, stage_.data(), n);
  }
  staged_ = kStageBytes;  // the next array waits for the moves
}

void Device::Synchronise() {
  if (stream_.handle != nullptr) stream_.Check(cudaStreamSynchronize(stream_.handle), "work before this");
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
  std::memcpy(stage_host_.data() + staged_, host, static_cast<size_t>(n_bytes));
  stream_.Check(cudaMemcpyAsync(copy, stage_host_.data() + staged_, static_cast<size_t>(n_bytes),
                                cudaMemcpyHostToDevice, stream_.handle),
                "a list");
  staged_ += room;
  return copy;
}

}  // namespace weir::cuda
