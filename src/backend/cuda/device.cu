// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/device.h"

#include <fmt/core.h>
#include <algorithm>
#include <cstring>
#include <map>

namespace weir::cuda {
namespace {

constexpr int kOldestMajor = 8;  // sm_80: asynchronous copies, int8 and half-precision matrix units as used by the
                                 // kernels

cudaStream_t StreamOf(Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

Status NoDevice(const char* why) { return Unsupported("no CUDA device: {}", why); }

// Compiled as all kernels are: a device that cannot run it runs none.
WEIR_KERNEL void Probe() {}

}  // namespace

struct Device::Memory {
  std::map<uintptr_t, std::pair<int64_t, Access>> ranges;  // by address: size, access
};

Result<std::unique_ptr<Device>> Device::Open(Ledger& ledger, bool graphs) {
  int n = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&n); error != cudaSuccess) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) return NoDevice("no NVIDIA driver is installed");
    return NoDevice(cudaGetErrorString(error));
  }
  if (n == 0) return NoDevice("the driver reports none");
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    return NoDevice(cudaGetErrorString(error));
  }
  if (properties.major < kOldestMajor) {
    return NoDevice(fmt::format("{} has compute capability {}.{}, this program needs {}.0", properties.name,
                                properties.major, properties.minor, kOldestMajor)
                        .c_str());
  }
  cudaFuncAttributes probe;
  if (const cudaError_t error = cudaFuncGetAttributes(&probe, Probe); error != cudaSuccess) {
    cudaGetLastError();
    return NoDevice(fmt::format("{}, sm_{}{}: this program has no kernels for it ({})", properties.name,
                                properties.major, properties.minor, cudaGetErrorString(error))
                        .c_str());
  }
  std::unique_ptr<Device> out(new Device);
  out->memory_ = std::make_unique<Memory>();
  out->name_ = fmt::format("{}, sm_{}{}", properties.name, properties.major, properties.minor);
  out->n_multiprocessors_ = properties.multiProcessorCount;
  if (const Status opened = out->stream_.Open(); !opened.ok()) return NoDevice(opened.message().c_str());
  WEIR_RETURN_IF_ERROR(out->OpenStream(ledger, graphs));
  return Result<std::unique_ptr<Device>>(std::move(out));
}

Device::~Device() {
  Synchronise();
  stage_ = Buffer();
  stage_host_ = Buffer();
}

int64_t Device::AvailableBytes() const {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
}

Result<Buffer> Device::Allocate(Ledger& ledger, MemTag tag, int64_t bytes, Access access) {
  if (bytes < 0) return InvalidArgument("cannot allocate {} bytes for {}", bytes, MemTagName(tag));
  WEIR_ASSIGN_OR_RETURN(Reservation reservation, ledger.Reserve(tag, PageRound(bytes)));
  if (reservation.bytes() == 0) return Buffer();
  const size_t size = static_cast<size_t>(reservation.bytes());
  void* data = nullptr;
  // Shared memory is pinned host memory: it is small and often read, and a device accesses it in place. Managed memory
  // (cudaMallocManaged) would migrate in the middle of a token.
  const cudaError_t error = access == Access::kDevice ? cudaMalloc(&data, size) : cudaMallocHost(&data, size);
  if (error != cudaSuccess) {
    cudaGetLastError();  // reported here, not by the next call
    return OverBudget("{} needs {} bytes, the device gives none of them ({}); it has {} left", MemTagName(tag), size,
                      cudaGetErrorString(error), AvailableBytes());
  }
  if (access == Access::kDevice) {
    stream_.Check(StatusOf(cudaMemsetAsync(data, 0, size, StreamOf(stream_)), "clearing memory"));
  } else {
    std::memset(data, 0, size);
  }
  memory_->ranges[reinterpret_cast<uintptr_t>(data)] = {reservation.bytes(), access};
  return Buffer(static_cast<uint8_t*>(data), std::move(reservation), this, [](void* owner, uint8_t* address) {
    auto& device = *static_cast<Device*>(owner);
    const auto at = device.memory_->ranges.find(reinterpret_cast<uintptr_t>(address));
    device.Synchronise();
    device.stream_.Check(
        StatusOf(at->second.second == Access::kDevice ? cudaFree(address) : cudaFreeHost(address), "freeing memory"));
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
  if (n_bytes <= 0 || to == from) return;
  auto* target = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  if (target < source + n_bytes && source < target + n_bytes) return Move(target, source, n_bytes);
  CopyApart(to, from, n_bytes);
}

void Device::Move(uint8_t* to, const uint8_t* from, int64_t n_bytes) {
  // Piece by piece through the staging memory, starting at the end that is written first.
  Synchronise();
  for (int64_t done = 0; done < n_bytes; done += kStageBytes) {
    const int64_t n = std::min(kStageBytes, n_bytes - done);
    const int64_t at = to < from ? done : n_bytes - done - n;
    CopyApart(stage_.data(), from + at, n);
    CopyApart(to + at, stage_.data(), n);
  }
  staged_ = kStageBytes;  // the next array waits for the moves
}

void Device::Synchronise() {
  stream_.Wait();
  staged_ = 0;
}

}  // namespace weir::cuda
