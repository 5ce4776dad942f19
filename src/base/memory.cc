#include "base/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace weir {

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  if (this != &other) {
    this->~HostBuffer();
    data_ = std::exchange(other.data_, nullptr);
    reservation_ = std::move(other.reservation_);
  }
  return *this;
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(reservation_.bytes()));
  data_ = nullptr;
}

Result<HostBuffer> HostBuffer::Allocate(Ledger& ledger, MemTag tag, int64_t bytes) {
  HostBuffer out;
  WEIR_ASSIGN_OR_RETURN(out.reservation_, ledger.Reserve(tag, PageRound(bytes)));
  if (out.reservation_.bytes() == 0) return out;
  void* data = mmap(nullptr, static_cast<size_t>(out.reservation_.bytes()), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (data == MAP_FAILED) {
    return IoError("the system cannot give %lld bytes for %s: %s", static_cast<long long>(out.reservation_.bytes()),
                   MemTagName(tag), std::strerror(errno));
  }
  out.data_ = static_cast<uint8_t*>(data);
  return out;
}

}  // namespace weir
