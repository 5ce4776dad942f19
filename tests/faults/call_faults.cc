// SPDX-License-Identifier: Apache-2.0
// Calls that fail, for a program that knows nothing of it: LD_PRELOAD this library. WEIR_CALL_FAULTS names a file of
// sizeof(Control) bytes, which the one who tests reads and writes at any time (tests/faults/control.py): it holds how
// often each kind of call was made, and which one is to fail. Of several processes only the first that finds no
// number of a process there has such calls, from main() on. Where one failed first is in the file of that name with
// ".trace".
//
// Kinds are in the order of Kind. support/disk_faults.cc fails every n-th call below one folder instead.
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
void* __libc_malloc(size_t);            // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(size_t, size_t);    // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void*, size_t);    // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(size_t, size_t);  // NOLINT(bugprone-reserved-identifier)
}

namespace {

enum Kind { kMemory, kOpen, kRead, kWrite, kSync, kRename, kMmap, kThread, kStat, kSocket, kChild, kName, kNumKinds };

struct Control {
  std::atomic<uint64_t> pid;    // of the process that has such calls; 0: the next one that starts
  std::atomic<uint64_t> kind;   // that fails, from 1; 0: none
  std::atomic<uint64_t> nth;    // of its calls, from 1
  std::atomic<uint64_t> last;   // and all up to this one
  std::atomic<uint64_t> error;  // errno; 0: it comes short
  std::atomic<uint64_t> failed;
  std::atomic<uint64_t> calls[kNumKinds];
};
static_assert(sizeof(Control) == 8 * (6 + kNumKinds));

Control* mapped = nullptr;
std::atomic<Control*> control{nullptr};  // the same, from main() on
int (*program)(int, char**, char**) = nullptr;
char trace_path[4096];
// The calls of this library itself do not count.
thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

__attribute__((constructor)) void Begin() {
  const char* const path = std::getenv("WEIR_CALL_FAULTS");
  if (path == nullptr || std::snprintf(trace_path, sizeof(trace_path), "%s.trace", path) <= 0) return;
  void* frames[1];
  backtrace(frames, 1);  // loads what it needs
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (fd < 0) return;
  const long at = syscall(SYS_mmap, nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (at == -1) return;
  auto* const found = reinterpret_cast<Control*>(at);
  uint64_t nobody = 0;
  if (found->pid.compare_exchange_strong(nobody, static_cast<uint64_t>(getpid()))) mapped = found;
}

int Main(int argc, char** argv, char** environment) {
  control.store(mapped);
  return program(argc, argv, environment);
}

void Trace() {
  const int fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, trace_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  void* frames[48];
  if (fd < 0) return;
  backtrace_symbols_fd(frames, backtrace(frames, 48), fd);
  syscall(SYS_close, fd);
}

// Whether this call fails; sets errno then.
bool Fails(Kind kind) {
  Control* const c = control.load(std::memory_order_relaxed);
  if (c == nullptr || inside) return false;
  const uint64_t n = ++c->calls[kind];
  if (c->kind != static_cast<uint64_t>(kind) + 1 || n < c->nth || n > c->last) return false;
  inside = true;
  if (++c->failed == 1) Trace();
  inside = false;
  errno = static_cast<int>(c->error);
  return true;
}

// The system's function of this name. What is asked for it does not fail.
template <typename Function>
Function* Next(const char* name) {
  const bool was_inside = inside;
  inside = true;
  void* const found = dlsym(RTLD_NEXT, name);
  inside = was_inside;
  return reinterpret_cast<Function*>(found);
}

long Do(Kind kind, long number, long a, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  return Fails(kind) ? -1 : syscall(number, a, b, c, d, e, f);
}

long At(const void* pointer) { return reinterpret_cast<long>(pointer); }

// `number` of a call whose third argument is how many bytes go at most.
ssize_t Transfer(Kind kind, long number, int fd, const void* bytes, size_t n, long d = 0, long e = 0, long f = 0) {
  if (Fails(kind)) {
    if (errno != 0) return -1;
    n = n > 1 ? n / 2 : n;
  }
  return syscall(number, fd, bytes, n, d, e, f);
}

}  // namespace

// By other names: the system's own may be inline functions here.
int Open(const char* path, int flags, ...) __asm__("open");
int Open64(const char* path, int flags, ...) __asm__("open64");
int OpenAt(int folder, const char* path, int flags, ...) __asm__("openat");
int OpenAt64(int folder, const char* path, int flags, ...) __asm__("openat64");

int OpenAt(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const long mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  return static_cast<int>(Do(kOpen, SYS_openat, folder, At(path), flags, mode));
}
int OpenAt64(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  return OpenAt(folder, path, flags, mode);
}
int Open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  return OpenAt(AT_FDCWD, path, flags, mode);
}
int Open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  va_end(more);
  return OpenAt(AT_FDCWD, path, flags, mode);
}

extern "C" {

// NOLINTNEXTLINE(bugprone-reserved-identifier)
int __libc_start_main(int (*run)(int, char**, char**), int argc, char** argv, void (*first)(), void (*last)(),
                      void (*of_linker)(), void* stack) {
  program = run;
  static auto* const next =
      Next<int(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*)>(
          "__libc_start_main");
  return next(Main, argc, argv, first, last, of_linker, stack);
}

void* malloc(size_t n) { return Fails(kMemory) ? nullptr : __libc_malloc(n); }
void* calloc(size_t n, size_t size) { return Fails(kMemory) ? nullptr : __libc_calloc(n, size); }
void* realloc(void* p, size_t n) { return Fails(kMemory) ? nullptr : __libc_realloc(p, n); }
void* memalign(size_t alignment, size_t n) { return Fails(kMemory) ? nullptr : __libc_memalign(alignment, n); }
void* aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }
int posix_memalign(void** out, size_t alignment, size_t n) {
  void* const p = memalign(alignment, n);
  if (p == nullptr) return ENOMEM;
  *out = p;
  return 0;
}

FILE* fopen(const char* path, const char* mode) {
  if (Fails(kOpen)) return nullptr;
  static auto* const next = Next<FILE*(const char*, const char*)>("fopen");
  return next(path, mode);
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }
DIR* opendir(const char* path) {
  if (Fails(kOpen)) return nullptr;
  static auto* const next = Next<DIR*(const char*)>("opendir");
  return next(path);
}

ssize_t read(int fd, void* bytes, size_t n) { return Transfer(kRead, SYS_read, fd, bytes, n); }
ssize_t pread(int fd, void* bytes, size_t n, off_t at) { return Transfer(kRead, SYS_pread64, fd, bytes, n, at); }
ssize_t pread64(int fd, void* bytes, size_t n, off_t at) { return pread(fd, bytes, n, at); }
ssize_t write(int fd, const void* bytes, size_t n) { return Transfer(kWrite, SYS_write, fd, bytes, n); }
ssize_t pwrite(int fd, const void* bytes, size_t n, off_t at) {
  return Transfer(kWrite, SYS_pwrite64, fd, bytes, n, at);
}
ssize_t pwrite64(int fd, const void* bytes, size_t n, off_t at) { return pwrite(fd, bytes, n, at); }
ssize_t recv(int fd, void* bytes, size_t n, int flags) {
  return Transfer(kSocket, SYS_recvfrom, fd, bytes, n, flags, 0, 0);
}
ssize_t send(int fd, const void* bytes, size_t n, int flags) {
  return Transfer(kSocket, SYS_sendto, fd, bytes, n, flags, 0, 0);
}

int fsync(int fd) { return static_cast<int>(Do(kSync, SYS_fsync, fd)); }
int fdatasync(int fd) { return static_cast<int>(Do(kSync, SYS_fdatasync, fd)); }
int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(Do(kRename, SYS_renameat, AT_FDCWD, At(from), AT_FDCWD, At(to)));
}
void* mmap(void* at, size_t n, int access, int flags, int fd, off_t offset) noexcept {
  return reinterpret_cast<void*>(Do(kMmap, SYS_mmap, At(at), static_cast<long>(n), access, flags, fd, offset));
}
void* mmap64(void* at, size_t n, int access, int flags, int fd, off_t offset) noexcept {
  return mmap(at, n, access, flags, fd, offset);
}
int madvise(void* at, size_t n, int advice) noexcept {
  return static_cast<int>(Do(kMmap, SYS_madvise, At(at), static_cast<long>(n), advice));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* of) {
  if (Fails(kThread)) return errno;
  static auto* const next = Next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return next(thread, attributes, start, of);
}

int stat(const char* path, struct stat* out) noexcept {
  return static_cast<int>(Do(kStat, SYS_newfstatat, AT_FDCWD, At(path), At(out)));
}
int fstat(int fd, struct stat* out) noexcept { return static_cast<int>(Do(kStat, SYS_fstat, fd, At(out))); }
int stat64(const char* path, struct stat64* out) noexcept { return stat(path, reinterpret_cast<struct stat*>(out)); }
int fstat64(int fd, struct stat64* out) noexcept { return fstat(fd, reinterpret_cast<struct stat*>(out)); }

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                const posix_spawnattr_t* attributes, char* const* argv, char* const* environment) {
  if (Fails(kChild)) return errno;
  static auto* const next = Next<decltype(posix_spawn)>("posix_spawn");
  return next(pid, path, actions, attributes, argv, environment);
}
pid_t fork() noexcept {
  if (Fails(kChild)) return -1;
  static auto* const next = Next<pid_t()>("fork");
  return next();
}
int pipe2(int* ends, int flags) noexcept { return static_cast<int>(Do(kChild, SYS_pipe2, At(ends), flags)); }

int ftruncate(int fd, off_t n) noexcept { return static_cast<int>(Do(kName, SYS_ftruncate, fd, n)); }
int ftruncate64(int fd, off_t n) noexcept { return ftruncate(fd, n); }
int unlink(const char* path) noexcept { return static_cast<int>(Do(kName, SYS_unlinkat, AT_FDCWD, At(path), 0)); }
int link(const char* from, const char* to) noexcept {
  return static_cast<int>(Do(kName, SYS_linkat, AT_FDCWD, At(from), AT_FDCWD, At(to), 0));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(Do(kName, SYS_mkdirat, AT_FDCWD, At(path), static_cast<long>(mode)));
}
int flock(int fd, int how) noexcept { return static_cast<int>(Do(kName, SYS_flock, fd, how)); }
}
