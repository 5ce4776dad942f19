#include "io/snapshot.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace weir {
namespace {

struct Header {
  char magic[8];
  uint32_t version, zero;
  uint64_t text_bytes, state_bytes;
  uint64_t checksum;
};
static_assert(sizeof(Header) == 40);
constexpr char kMagic[8] = {'w', 'e', 'i', 'r', 's', 'n', 'a', 'p'};
constexpr uint32_t kVersion = 1;
constexpr size_t kCoveredBytes = offsetof(Header, checksum);

// Eight bytes a step, each step a bijection of the sum: no change of a single word can go unseen.
uint64_t Mix(uint64_t sum, std::span<const uint8_t> bytes) {
  const auto step = [&sum](uint64_t word) {
    sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 29;
  };
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    step(word);
  }
  uint64_t rest = 0;
  if (at < bytes.size()) std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
  step(rest);
  step(bytes.size());
  return sum;
}

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

uint64_t Checksum(const Header& header, std::string_view text, std::span<const uint8_t> state) {
  const std::span<const uint8_t> head(reinterpret_cast<const uint8_t*>(&header), kCoveredBytes);
  return Mix(Mix(Mix(0x77656972u, head), BytesOf(text)), state);
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Status Failed(const char* what, const std::string& path) {
  return IoError("cannot %s %s: %s", what, path.c_str(), std::strerror(errno));
}

Status WriteAll(int fd, std::span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed("write", path);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return Status();
}

Status ReadAll(int fd, uint8_t* to, size_t n_bytes, const std::string& path) {
  while (n_bytes > 0) {
    const ssize_t n = read(fd, to, std::min<size_t>(n_bytes, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("read", path);
    if (n == 0) return Corrupt("%s ends early", path.c_str());
    to += n;
    n_bytes -= static_cast<size_t>(n);
  }
  return Status();
}

// The part, empty and locked. Between open and lock another writer may have renamed it, and writing into it would then
// damage a finished file: so what is locked must still be what the name says.
Result<int> OpenPart(const std::string& part) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) return Failed("create", part);
    struct stat mine {
    }, named{};
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      return OverBudget("another save of this file is under way");
    }
    if (fstat(fd, &mine) == 0 && stat(part.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
        mine.st_dev == named.st_dev) {
      if (S_ISREG(mine.st_mode) && ftruncate(fd, 0) == 0) return fd;
      const Status failed = Failed("empty", part);
      close(fd);
      return failed;
    }
    close(fd);
  }
  return OverBudget("other saves of this file are under way");
}

}  // namespace

Status WriteSnapshot(const std::string& path, std::string_view text, std::span<const uint8_t> state) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.text_bytes = text.size();
  header.state_bytes = state.size();
  header.checksum = Checksum(header, text, state);

  const std::string part = path + ".part";
  WEIR_ASSIGN_OR_RETURN(const int fd, OpenPart(part));
  const File file(fd);
  Status status = WriteAll(fd, {reinterpret_cast<const uint8_t*>(&header), sizeof(header)}, part);
  if (status.ok()) status = WriteAll(fd, BytesOf(text), part);
  if (status.ok()) status = WriteAll(fd, state, part);
  if (status.ok() && fsync(fd) != 0) status = Failed("write", part);
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0) status = Failed("write", path);
  if (!status.ok()) {
    unlink(part.c_str());
    return status;
  }
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const File directory(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.fd() < 0 || fsync(directory.fd()) != 0) return Failed("sync", folder);
  return Status();
}

Result<Snapshot> ReadSnapshot(const std::string& path, int64_t max_bytes) {
  // Not blocking: a pipe of that name would wait for ever.
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd() < 0) {
    if (errno == ENOENT) return NotFound("there is no snapshot %s", path.c_str());
    return Failed("read", path);
  }
  struct stat info {};
  if (fstat(file.fd(), &info) != 0) return Failed("read", path);
  if (!S_ISREG(info.st_mode)) return IoError("%s is no regular file", path.c_str());
  if (info.st_size > max_bytes) {
    return OverBudget("snapshot %s has %lld bytes, more than the %lld that may be read", path.c_str(),
                      static_cast<long long>(info.st_size), static_cast<long long>(max_bytes));
  }
  const uint64_t n_bytes = static_cast<uint64_t>(info.st_size);
  Header header;
  if (n_bytes < sizeof(header)) return Corrupt("%s is no snapshot of a session; name one, or a new file", path.c_str());
  WEIR_RETURN_IF_ERROR(ReadAll(file.fd(), reinterpret_cast<uint8_t*>(&header), sizeof(header), path));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return Corrupt("%s is no snapshot of a session; name one, or a new file", path.c_str());
  if (header.version != kVersion) {
    return Unsupported("snapshot %s has version %u; this build reads version %u", path.c_str(), header.version,
                       kVersion);
  }
  const uint64_t n_payload = n_bytes - sizeof(header);
  if (header.text_bytes > n_payload || header.state_bytes != n_payload - header.text_bytes) {
    return Corrupt("snapshot %s does not have the length it names", path.c_str());
  }
  Snapshot out;
  out.text.resize(header.text_bytes);
  out.state.resize(header.state_bytes);
  WEIR_RETURN_IF_ERROR(ReadAll(file.fd(), reinterpret_cast<uint8_t*>(out.text.data()), out.text.size(), path));
  WEIR_RETURN_IF_ERROR(ReadAll(file.fd(), out.state.data(), out.state.size(), path));
  if (Checksum(header, out.text, out.state) != header.checksum) return Corrupt("snapshot %s is damaged", path.c_str());
  return out;
}

}  // namespace weir
