// SPDX-License-Identifier: Apache-2.0
#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "base/clock.h"
#include "base/settle.h"
#include "base/threads.h"

namespace weir {
namespace {

// Below this size, the check is not worth reading two files.
constexpr int64_t kAskSystemFrom = int64_t{64} << 20;
constexpr size_t kHugePageBytes = size_t{2} << 20;
// Clearing a page that is there takes a tenth of this; one that a host has yet to give, twice as long.
constexpr double kSlowNsPerByte = 1.0;
// How long huge pages are left out after slow ones.
constexpr std::chrono::seconds kSlowFor{2};

// The first number of a file, or `fallback` ("max" in a control group means no limit).
int64_t NumberIn(const char* path, int64_t fallback) {
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return fallback;
  long long value = 0;
  const bool read = std::fscanf(file, "%lld", &value) == 1;
  std::fclose(file);
  return read ? value : fallback;
}

// Memory that the process's control group (version 2) and its parents still allow. Page cache counts as used there but
// is reclaimed when memory is short, so it is added back.
int64_t AvailableInControlGroup() {
  std::FILE* file = std::fopen("/proc/self/cgroup", "r");
  if (file == nullptr) return INT64_MAX;
  char line[4096];
  std::string group;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, "0::", 3) == 0) group.assign(line + 3, std::strcspn(line + 3, "\n"));
  }
  std::fclose(file);
  int64_t available = INT64_MAX;
  while (true) {
    const std::string folder = "/sys/fs/cgroup" + group + "/";
    const int64_t limit = NumberIn((folder + "memory.max").c_str(), INT64_MAX);
    if (limit != INT64_MAX) {
      int64_t files = 0;
      if (std::FILE* stat = std::fopen((folder + "memory.stat").c_str(), "r"); stat != nullptr) {
        while (std::fgets(line, sizeof(line), stat) != nullptr) {
          long long bytes = 0;
          if (std::sscanf(line, "active_file %lld", &bytes) == 1 ||
              std::sscanf(line, "inactive_file %lld", &bytes) == 1)
            files += bytes;
        }
        std::fclose(stat);
      }
      available =
          std::min(available, std::max<int64_t>(0, limit - NumberIn((folder + "memory.current").c_str(), 0) + files));
    }
    if (group.empty() || group == "/") return available;
    group.erase(group.find_last_of('/'));
  }
}

// A mapping that is aligned to a huge page.
void* MapAligned(size_t bytes) {
  const size_t more = bytes + kHugePageBytes;
  void* wide = mmap(nullptr, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wide == MAP_FAILED) return wide;
  auto* first = static_cast<uint8_t*>(wide);
  const size_t before = (kHugePageBytes - reinterpret_cast<uintptr_t>(first) % kHugePageBytes) % kHugePageBytes;
  if (before > 0) munmap(first, before);
  munmap(first + before + bytes, more - before - bytes);
  return first + before;
}

// Makes every page resident now.
bool Populate(void* data, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;  // EINVAL: a kernel from before 5.14
#endif
  for (size_t at = 0; at < bytes; at += kPageBytes) static_cast<volatile uint8_t*>(data)[at] = 0;
  return true;
}

double ThreadNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// Only a hint: everything is correct without it.
void Advise(void* data, size_t bytes, bool huge) {
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
}

// Until when huge pages are left out, in the clock's ticks: a property of the machine, so of the process.
std::atomic<Clock::rep> huge_pages_are_slow_until{0};

// The same on all threads of a pool, with huge pages if the system has them and gives them fast: streaming through a
// pot or a matrix in small pages spends much of its time on TLB misses. `soon`: without them where they are slow.
bool PopulateAll(void* data, size_t bytes, ThreadPool* pool, bool soon) {
  const Clock::rep now = Clock::now().time_since_epoch().count();
  const bool may = bytes >= kHugePageBytes;
  const bool huge = may && !(soon && now < huge_pages_are_slow_until.load(std::memory_order_relaxed));
  if (huge) Advise(data, bytes, true);
  std::atomic<int> error{0};
  std::atomic<bool> slow{false};
  const auto populate = [&](int64_t i, int) {
    const size_t at = static_cast<size_t>(i) * kHugePageBytes, n = std::min(kHugePageBytes, bytes - at);
    const double began = ThreadNs();
    if (!Populate(static_cast<uint8_t*>(data) + at, n)) error.store(errno);
    if (!soon || !huge || n < kHugePageBytes || ThreadNs() - began < kSlowNsPerByte * static_cast<double>(n)) return;
    if (slow.exchange(true)) return;
    Advise(data, bytes, false);  // the rest
    huge_pages_are_slow_until.store(now + Clock::duration(kSlowFor).count(), std::memory_order_relaxed);
  };
  const auto n_pieces = static_cast<int64_t>((bytes + kHugePageBytes - 1) / kHugePageBytes);
  if (pool != nullptr) {
    pool->For(n_pieces, populate);
  } else {
    for (int64_t i = 0; i < n_pieces; ++i) populate(i, 0);
  }
  if (may && (!huge || slow.load())) Advise(data, bytes, true);  // for when it costs nobody's time
  errno = error.load();
  return errno == 0;
}

}  // namespace

bool HasSlowHugePages() { return huge_pages_are_slow_until.load(std::memory_order_relaxed) != 0; }

int64_t AvailableHostBytes() {
  int64_t available = INT64_MAX;
  if (std::FILE* file = std::fopen("/proc/meminfo", "r"); file != nullptr) {
    char line[128];
    while (std::fgets(line, sizeof(line), file) != nullptr) {
      long long kib = 0;
      if (std::sscanf(line, "MemAvailable: %lld kB", &kib) == 1) available = kib * 1024;
    }
    std::fclose(file);
  }
  return std::min(available, AvailableInControlGroup());
}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  if (this != &other) {
    Unmap();
    data_ = std::exchange(other.data_, nullptr);
    reservation_ = std::move(other.reservation_);
  }
  return *this;
}

HostBuffer::~HostBuffer() { Unmap(); }

void HostBuffer::Unmap() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(reservation_.bytes()));
  data_ = nullptr;
}

Result<HostBuffer> HostBuffer::Allocate(Ledger& ledger, MemTag tag, int64_t bytes, ThreadPool* pool) {
  if (bytes < 0) return InvalidArgument("cannot allocate {} bytes for {}", bytes, MemTagName(tag));
  HostBuffer out;
  WEIR_ASSIGN_OR_RETURN(out.reservation_, ledger.Reserve(tag, PageRound(bytes)));
  if (out.reservation_.bytes() == 0) return out;
  if (out.reservation_.bytes() >= kAskSystemFrom) {
    if (const int64_t available = AvailableHostBytes(); out.reservation_.bytes() > available) {
      return OverBudget("{} needs {} bytes, the system has {} left", MemTagName(tag), out.reservation_.bytes(),
                        available);
    }
  }
  const auto size = static_cast<size_t>(out.reservation_.bytes());
  void* data = size >= kHugePageBytes ? MapAligned(size)
                                      : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED || !PopulateAll(data, size, pool, tag == MemTag::kWeights)) {
    const int error = errno;
    if (data != MAP_FAILED) munmap(data, size);
    return IoError("the system cannot give {} bytes for {}: {}", size, MemTagName(tag), std::strerror(error));
  }
  out.data_ = static_cast<uint8_t*>(data);
  return out;
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    Free();
    host_ = std::move(other.host_);
    data_ = std::exchange(other.data_, nullptr);
    reservation_ = std::move(other.reservation_);
    owner_ = std::exchange(other.owner_, nullptr);
    free_ = std::exchange(other.free_, nullptr);
  }
  return *this;
}

void Buffer::Free() {
  if (free_ != nullptr && data_ != nullptr) free_(owner_, data_);
  data_ = nullptr;
}

}  // namespace weir
