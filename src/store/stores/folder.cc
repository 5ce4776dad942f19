// weir-plugin: store
// SPDX-License-Identifier: Apache-2.0
// A folder of this machine, or one that several share (NFS). Notes are replaced by a rename under a lock of the note's
// own file, and made by a link, which fails where there is one; files are written in their place, as SnapshotWriter
// does.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "store/stores/store.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kLookAtLock{5};

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// The name of a file's content. A note's own text, as no two are the same; of something larger, which is no note, what
// the file system knows.
std::string VersionOf(const std::string& text, const struct stat& info) {
  if (info.st_size <= static_cast<int64_t>(Store::kMaxNoteBytes)) return "=" + text;
  return fmt::format("{}:{}:{}.{}", info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

class FolderStore final : public Store {
 public:
  FolderStore(std::string folder, const StoreOptions& options) : Store(Once(options)), folder_(std::move(folder)) {}

  Result<LocalFile> NewFile(const std::string& key) override {
    WEIR_RETURN_IF_ERROR(MakeFolderOf(key));
    return LocalFile(PathOf(key), false);
  }
  std::string folder() const override { return folder_; }

 protected:
  Result<Note> TryRead(const std::string& key) override {
    const File file(open(PathOf(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.fd() < 0 && errno == ENOENT) return Note();
    if (file.fd() < 0) return Failed("read", key);
    return ReadHere(file.fd(), key);
  }

  Result<std::optional<std::string>> TryWrite(const std::string& key, const std::string& text,
                                              const std::string& version) override {
    WEIR_RETURN_IF_ERROR(MakeFolderOf(key));
    std::optional<File> lock;
    if (!version.empty()) {
      WEIR_ASSIGN_OR_RETURN(lock, LockNote(key, version));
      if (!lock) return std::optional<std::string>();
    }
    uint64_t random = 0;  // process ids repeat, on other machines and in containers
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
      return IoError("the system provides no random numbers");
    const std::string part = fmt::format("{}.{:016x}.part", PathOf(key), random);
    Status status = WriteFile(part, text);
    const bool moved = status.ok() && (version.empty() ? link(part.c_str(), PathOf(key).c_str())
                                                       : rename(part.c_str(), PathOf(key).c_str())) == 0;
    const bool there = status.ok() && !moved && version.empty() && errno == EEXIST;
    if (status.ok() && !moved && !there) status = Failed("write", key);
    if (!moved || version.empty()) unlink(part.c_str());
    WEIR_RETURN_IF_ERROR(status);
    if (there) return std::optional<std::string>();
    WEIR_RETURN_IF_ERROR(SyncFolderOf(key));
    return std::optional<std::string>("=" + text);
  }

  Status TryRemove(const std::string& key, const std::string& version) override {
    std::optional<File> lock;
    if (!version.empty()) {
      WEIR_ASSIGN_OR_RETURN(lock, LockNote(key, version));
      if (!lock) return Status();
    }
    if (unlink(PathOf(key).c_str()) != 0 && errno != ENOENT) return Failed("delete", key);
    return Status();
  }

  Status TrySend(const std::string&, const LocalFile&) override { return Status(); }

  Result<LocalFile> TryFetch(const std::string& key, int64_t) override {
    if (access(PathOf(key).c_str(), F_OK) != 0) return NotFound("there is no snapshot {}", PathOf(key));
    return LocalFile(PathOf(key), false);
  }

  Result<std::vector<std::string>> TryList(const std::string& prefix) override {
    const size_t slash = prefix.rfind('/');
    const std::string parent = slash == prefix.npos ? "" : prefix.substr(0, slash + 1);
    std::vector<std::string> out;
    std::error_code error;
    for (std::filesystem::directory_iterator at(PathOf(parent), error), end;
         !error && at != end && out.size() < kMaxKeys; at.increment(error)) {
      std::string key = parent + at->path().filename().string();
      if (key.starts_with(prefix) && !key.ends_with(".part")) out.push_back(std::move(key));
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      return IoError("cannot list {}: {}", PathOf(parent), error.message());
    }
    return out;
  }

 private:
  // A disk that fails does not get better at once.
  static StoreOptions Once(StoreOptions options) {
    options.tries = 1;
    return options;
  }
  std::string PathOf(const std::string& key) const { return folder_ + "/" + key; }
  Status Failed(const char* what, const std::string& key) const {
    return IoError("cannot {} {}: {}", what, PathOf(key), std::strerror(errno));
  }
  Status MakeFolderOf(const std::string& key) const {
    const size_t slash = key.rfind('/');
    if (slash == key.npos) return Status();
    const std::string path = PathOf(key.substr(0, slash));
    if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return Status();
    return IoError("cannot make {}: {}", path, std::strerror(errno));
  }
  Status SyncFolderOf(const std::string& key) const {
    const size_t slash = key.rfind('/');
    const std::string path = slash == key.npos ? folder_ : PathOf(key.substr(0, slash));
    const File folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.fd() < 0 || fsync(folder.fd()) != 0) return IoError("cannot sync {}: {}", path, std::strerror(errno));
    return Status();
  }

  Status WriteFile(const std::string& path, const std::string& text) const {
    const File file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.fd() < 0 || write(file.fd(), text.data(), text.size()) != std::ssize(text) || fsync(file.fd()) != 0) {
      return IoError("cannot write {}: {}", path, std::strerror(errno));
    }
    return Status();
  }

  Result<Note> ReadHere(int fd, const std::string& key) const {
    struct stat info {};
    if (fstat(fd, &info) != 0) return Failed("read", key);
    if (!S_ISREG(info.st_mode)) return IoError("{} is no regular file", PathOf(key));
    Note out;
    out.text.resize(std::min<size_t>(static_cast<size_t>(info.st_size), kMaxNoteBytes));
    const ssize_t n = pread(fd, out.text.data(), out.text.size(), 0);
    if (n < 0) return Failed("read", key);
    out.text.resize(static_cast<size_t>(n));
    out.version = VersionOf(out.text, info);
    return out;
  }

  // The note's file, locked, if it has this version.
  Result<std::optional<File>> LockNote(const std::string& key, const std::string& version) const {
    const auto end = std::chrono::steady_clock::now() + options_.timeout;
    for (;;) {
      File file(open(PathOf(key).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
      if (file.fd() < 0 && errno == ENOENT) return std::optional<File>();
      if (file.fd() < 0) return Failed("open", key);
      struct stat mine {
      }, named{};
      const bool locked = flock(file.fd(), LOCK_EX | LOCK_NB) == 0;
      if (!locked && errno != EWOULDBLOCK) {
        return IoError("cannot lock {}: {}; sessions that move need a file system with locks", PathOf(key),
                       std::strerror(errno));
      }
      // Another server may have replaced it between open and lock.
      if (locked && fstat(file.fd(), &mine) == 0 && stat(PathOf(key).c_str(), &named) == 0 &&
          mine.st_ino == named.st_ino && mine.st_dev == named.st_dev) {
        WEIR_ASSIGN_OR_RETURN(const Note now, ReadHere(file.fd(), key));
        if (now.version != version) return std::optional<File>();
        return std::optional<File>(std::move(file));
      }
      if (std::chrono::steady_clock::now() > end) return IoError("{} is locked by another server", PathOf(key));
      if (!locked) std::this_thread::sleep_for(kLookAtLock);
    }
  }

  const std::string folder_;
};

Result<std::unique_ptr<Store>> Open(const std::string& address, const StoreOptions& options) {
  struct stat info {};
  if (stat(address.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return NotFound("{} is not a folder", address);
  return std::unique_ptr<Store>(new FolderStore(address, options));
}

}  // namespace

extern const StoreInfo kFolderStore;
const StoreInfo kFolderStore = {.scheme = "", .addresses = "a folder", .bytes_a_call = 0, .open = Open};

}  // namespace weir
