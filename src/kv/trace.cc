#include "kv/trace.h"

#include <cerrno>
#include <cstring>

namespace weir {

Result<std::unique_ptr<TraceWriter>> TraceWriter::Open(const std::string& path) {
  std::unique_ptr<TraceWriter> out(new TraceWriter);
  out->path_ = path;
  out->file_ = std::fopen((path + ".part").c_str(), "wb");
  if (out->file_ == nullptr) return IoError("cannot write the trace %s: %s", path.c_str(), std::strerror(errno));
  return out;
}

TraceWriter::~TraceWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove((path_ + ".part").c_str());
}

Status TraceWriter::Fail() {
  const int error = errno;
  std::fclose(file_);
  file_ = nullptr;
  std::remove((path_ + ".part").c_str());
  return IoError("cannot write the trace %s: %s", path_.c_str(), std::strerror(error));
}

Status TraceWriter::Dropped(int64_t step, const char* policy, int32_t layer, int32_t head,
                            std::span<const SlotMeta> slots, const KeepSet& keep, const char* reason) {
  if (file_ == nullptr) return IoError("the trace %s is closed", path_.c_str());
  size_t idx = 0;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (idx < keep.size() && keep[idx] == static_cast<int32_t>(slot)) {
      ++idx;
      continue;
    }
    const SlotMeta& m = slots[slot];
    if (std::fprintf(file_,
                     "{\"step\":%lld,\"policy\":\"%s\",\"layer\":%d,\"head\":%d,\"slot\":%zu,\"seq\":%lld,\"t_src_ms\":%lld,"
                     "\"token\":%d,\"reason\":\"%s\"}\n",
                     static_cast<long long>(step), policy, layer, head, slot, static_cast<long long>(m.seq),
                     static_cast<long long>(m.t_src_ms), m.token_id, reason) < 0) {
      return Fail();
    }
  }
  // A full disk is told at once, not when the stream ends.
  if (std::fflush(file_) != 0) return Fail();
  return Status();
}

Status TraceWriter::Close() {
  if (file_ == nullptr) return IoError("the trace %s is closed", path_.c_str());
  if (std::fflush(file_) != 0) return Fail();
  const int error = std::fclose(file_);
  file_ = nullptr;
  const std::string part = path_ + ".part";
  if (error != 0 || std::rename(part.c_str(), path_.c_str()) != 0) {
    const int code = errno;
    std::remove(part.c_str());
    return IoError("cannot write the trace %s: %s", path_.c_str(), std::strerror(code));
  }
  return Status();
}

}  // namespace weir
