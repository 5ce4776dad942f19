#include "kv/trace.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace weir {

Result<std::unique_ptr<TraceWriter>> TraceWriter::Open(const std::string& path) {
  std::unique_ptr<TraceWriter> out(new TraceWriter);
  out->path_ = path;
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return IoError("cannot write the trace %s: it is a directory", path.c_str());
  if (!exists || S_ISREG(info.st_mode)) out->part_ = path + ".part";
  out->file_ = std::fopen(out->part_.empty() ? path.c_str() : out->part_.c_str(), "wb");
  if (out->file_ == nullptr) return IoError("cannot write the trace %s: %s", path.c_str(), std::strerror(errno));
  return out;
}

TraceWriter::~TraceWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  RemovePart();
}

void TraceWriter::RemovePart() {
  if (!part_.empty()) std::remove(part_.c_str());
}

Status TraceWriter::Fail() {
  const int error = errno;
  std::fclose(file_);
  file_ = nullptr;
  RemovePart();
  return IoError("cannot write the trace %s: %s", path_.c_str(), std::strerror(error));
}

Status TraceWriter::Selected(const TraceSelection& selection) {
  const std::span<const SlotMeta> slots = selection.slots;
  const KeepSet& keep = *selection.keep;
  if (file_ == nullptr) return IoError("the trace %s is closed", path_.c_str());
  size_t idx = 0;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    if (idx < keep.size() && keep[idx] == static_cast<int32_t>(slot)) {
      ++idx;
      continue;
    }
    const SlotMeta& m = slots[slot];
    if (std::fprintf(
            file_,
            "{\"step\":%lld,\"policy\":\"%s\",\"layer\":%d,\"head\":%d,\"slot\":%zu,\"seq\":%lld,\"t_src_ms\":%lld,"
            "\"token\":%d,\"reason\":\"%s\"}\n",
            static_cast<long long>(selection.step), selection.policy, selection.layer, selection.head, slot,
            static_cast<long long>(m.seq), static_cast<long long>(m.t_src_ms), m.token_id, selection.reason) < 0) {
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
  if (error != 0 || (!part_.empty() && std::rename(part_.c_str(), path_.c_str()) != 0)) {
    const int code = errno;
    RemovePart();
    return IoError("cannot write the trace %s: %s", path_.c_str(), std::strerror(code));
  }
  return Status();
}

}  // namespace weir
