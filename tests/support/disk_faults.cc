// SPDX-License-Identifier: Apache-2.0
// A disk that fails, for a program that knows nothing of it: LD_PRELOAD this library. Of the calls that concern files
// in WEIR_FAULT_DIR, each WEIR_FAULT_NTH-th of the kind WEIR_FAULT_CALL (create, pwrite, pread, sync, ftruncate,
// rename, link, unlink) fails with WEIR_FAULT_ERRNO, or comes short if that is 0. WEIR_FAULT_LOG gets a byte for each.
// If WEIR_FAULT_WHILE names a file, that is so only while it is there.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

const char* Setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool Concerns(const char* path) {
  const char* const folder = Setting("WEIR_FAULT_DIR");
  return *folder != '\0' && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

bool Concerns(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof(path) - 1);
  path[std::max<ssize_t>(n, 0)] = '\0';
  return Concerns(path);
}

// Whether this call fails. The caller has found that it concerns the folder.
bool Fails(const char* call) {
  static std::atomic<long> n{0};
  const long nth = std::atol(Setting("WEIR_FAULT_NTH"));
  const char* const on = Setting("WEIR_FAULT_WHILE");
  if (nth <= 0 || std::strcmp(Setting("WEIR_FAULT_CALL"), call) != 0) return false;
  if ((*on != '\0' && access(on, F_OK) != 0) || ++n % nth != 0) return false;
  const int log = open(Setting("WEIR_FAULT_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (log >= 0) {
    (void)!write(log, "x", 1);
    close(log);
  }
  return true;
}

int Number() { return std::atoi(Setting("WEIR_FAULT_ERRNO")); }

ssize_t Transfer(const char* call, long number, int fd, void* bytes, size_t n, off_t at) {
  if (Concerns(fd) && Fails(call)) {
    if (Number() != 0) {
      errno = Number();
      return -1;
    }
    n /= 2;
  }
  return syscall(number, fd, bytes, n, at);
}

int Do(const char* call, bool concerns, long number, long a, long b, long c = 0, long d = 0) {
  if (concerns && Fails(call)) {
    errno = Number() != 0 ? Number() : EINTR;
    return -1;
  }
  return static_cast<int>(syscall(number, a, b, c, d));
}

}  // namespace

// By other names: the system's own may be inline functions here.
int Create(const char* path, int flags, ...) __asm__("open");
int Create64(const char* path, int flags, ...) __asm__("open64");

int Create(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const long mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  return Do("create", (flags & O_CREAT) != 0 && Concerns(path), SYS_openat, AT_FDCWD, reinterpret_cast<long>(path),
            flags, mode);
}
int Create64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  return Create(path, flags, mode);
}

extern "C" {
ssize_t pwrite(int fd, const void* bytes, size_t n, off_t at) {
  return Transfer("pwrite", SYS_pwrite64, fd, const_cast<void*>(bytes), n, at);
}
ssize_t pwrite64(int fd, const void* bytes, size_t n, off_t at) { return pwrite(fd, bytes, n, at); }
ssize_t pread(int fd, void* bytes, size_t n, off_t at) { return Transfer("pread", SYS_pread64, fd, bytes, n, at); }
ssize_t pread64(int fd, void* bytes, size_t n, off_t at) { return pread(fd, bytes, n, at); }
int fsync(int fd) { return Do("sync", Concerns(fd), SYS_fsync, fd, 0); }
int fdatasync(int fd) { return Do("sync", Concerns(fd), SYS_fdatasync, fd, 0); }
int ftruncate(int fd, off_t n) noexcept { return Do("ftruncate", Concerns(fd), SYS_ftruncate, fd, n); }
int ftruncate64(int fd, off_t n) noexcept { return ftruncate(fd, n); }
int rename(const char* from, const char* to) noexcept {
  return Do("rename", Concerns(from), SYS_rename, reinterpret_cast<long>(from), reinterpret_cast<long>(to));
}
int link(const char* from, const char* to) noexcept {
  return Do("link", Concerns(to), SYS_link, reinterpret_cast<long>(from), reinterpret_cast<long>(to));
}
int unlink(const char* path) noexcept {
  return Do("unlink", Concerns(path), SYS_unlink, reinterpret_cast<long>(path), 0);
}
}
