// SPDX-License-Identifier: Apache-2.0
#include "base/sandbox.h"

#if defined(__linux__) && __has_include(<linux/landlock.h>)
#define WEIR_SANDBOX 1
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#else
#define WEIR_SANDBOX 0
#endif

namespace weir {

#if WEIR_SANDBOX
namespace {

// ---- files (Landlock)

// The kernel's struct landlock_ruleset_attr, which grew; older headers lack its newer fields.
struct Handled {
  uint64_t files = 0, network = 0, scoped = 0;
};

constexpr uint64_t kFilesOnly =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE;
constexpr uint64_t kRead = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
// Newer than the headers of Debian 12.
constexpr uint64_t kTruncate = uint64_t{1} << 14, kDeviceCalls = uint64_t{1} << 15;
constexpr uint64_t kBindAndConnect = 3;      // TCP
constexpr uint64_t kAbstractAndSignals = 3;  // to processes outside

// What a version of Landlock can forbid.
Handled Known(long version, bool network) {
  Handled out;
  out.files = (uint64_t{1} << 13) - 1;
  if (version >= 2) out.files |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) out.files |= kTruncate;
  if (version >= 4 && !network) out.network = kBindAndConnect;
  if (version >= 5) out.files |= kDeviceCalls;
  if (version >= 6) out.scoped = kAbstractAndSignals;
  return out;
}

class Ruleset {
 public:
  explicit Ruleset(const Handled& handled)
      : files_(handled.files),
        fd_(static_cast<int>(syscall(SYS_landlock_create_ruleset, &handled, Size(handled), 0))) {}
  ~Ruleset() {
    if (fd_ >= 0) close(fd_);
  }
  Ruleset(const Ruleset&) = delete;
  Ruleset& operator=(const Ruleset&) = delete;
  int fd() const { return fd_; }

  bool Allow(const std::string& path, uint64_t rights) {
    const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (fd < 0) return true;  // it is not there, or nobody may read it anyway
    const bool done = AllowOpen(fd, rights);
    close(fd);
    return done;
  }
  bool AllowOpen(int fd, uint64_t rights) {
    struct stat info;
    if (fstat(fd, &info) != 0) return false;
    if (!S_ISDIR(info.st_mode)) rights &= kFilesOnly | kTruncate | kDeviceCalls;
    landlock_path_beneath_attr rule = {};
    rule.allowed_access = rights & files_;
    rule.parent_fd = fd;
    if (syscall(SYS_landlock_add_rule, fd_, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0) return true;
    return errno == EBADFD;  // a pipe, or memory: such files need no rule
  }

 private:
  // An older kernel knows only the beginning, and takes the rest while it is zero.
  static size_t Size(const Handled& handled) {
    if (handled.scoped != 0) return sizeof(Handled);
    return handled.network != 0 ? offsetof(Handled, scoped) : offsetof(Handled, network);
  }
  uint64_t files_;
  int fd_;
};

Status ConfineFiles(const Sandbox& sandbox) {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return Unsupported("this kernel cannot confine a program to some files: {}", std::strerror(errno));
  const Handled handled = Known(version, sandbox.network);
  Ruleset rules(handled);
  if (rules.fd() < 0) return IoError("no rules for files: {}", std::strerror(errno));
  bool done = true;
  for (const std::string& path : sandbox.readable) done = done && rules.Allow(path, kRead);
  for (const std::string& path : sandbox.writable) done = done && rules.Allow(path, handled.files);
  if (sandbox.readable_fd >= 0) done = done && rules.AllowOpen(sandbox.readable_fd, LANDLOCK_ACCESS_FS_READ_FILE);
  if (!done) return IoError("a rule for a file is refused: {}", std::strerror(errno));
  if (syscall(SYS_landlock_restrict_self, rules.fd(), 0) == 0) return Status();
  return IoError("rules for files are refused: {}", std::strerror(errno));
}

// ---- system calls (seccomp)

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

// Nothing that decodes, reads or serves needs them.
constexpr uint32_t kRefused[] = {
    // other processes
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kcmp,
    // mounts and namespaces
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_unshare,
    SYS_setns,
    SYS_mknodat,
    SYS_name_to_handle_at,
    SYS_open_by_handle_at,
    SYS_quotactl,
    // the kernel and the machine
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    // clocks
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_adjtimex,
    SYS_clock_adjtime,
    // keys
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
#ifdef SYS_pidfd_getfd
    SYS_pidfd_getfd,
#endif
#ifdef SYS_move_mount
    SYS_move_mount,
    SYS_open_tree,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
#endif
#ifdef SYS_io_uring_setup
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,  // they pass by this filter
#endif
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_mknod
    SYS_mknod,
    SYS_iopl,
    SYS_ioperm,
#endif
};
constexpr uint32_t kNewNamespaces = 0x7e020000;   // CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
constexpr uint32_t kForeignNumbers = 0x40000000;  // of x86's third kind of system calls
constexpr uint32_t kLowHalf = offsetof(seccomp_data, args);  // of the first argument, on machines that begin with it

Status ConfineCalls(bool network) {
  if (kArchitecture == 0) return Unsupported("there is no filter of system calls for this processor");
  std::vector<sock_filter> filter;
  const auto load = [&](uint32_t at) { filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)); };
  const auto refuse = [&](uint32_t error) { filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error)); };
  // Passes over the next n instructions unless the test holds.
  const auto unless = [&](uint16_t test, uint32_t value, uint8_t n) {
    filter.push_back(BPF_JUMP(static_cast<uint16_t>(BPF_JMP | test | BPF_K), value, 0, n));
  };
  load(offsetof(seccomp_data, arch));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  load(offsetof(seccomp_data, nr));
  unless(BPF_JGE, kForeignNumbers, 1);
  refuse(EPERM);
  for (const uint32_t call : kRefused) {
    unless(BPF_JEQ, call, 1);
    refuse(EPERM);
  }
  // Its flags are behind a pointer, where a filter cannot see; the C library then takes clone().
  unless(BPF_JEQ, SYS_clone3, 1);
  refuse(ENOSYS);
  unless(BPF_JEQ, SYS_clone, 4);
  load(kLowHalf);
  unless(BPF_JSET, kNewNamespaces, 1);
  refuse(EPERM);
  load(offsetof(seccomp_data, nr));
  if (!network) {
    unless(BPF_JEQ, SYS_socket, 3);
    load(kLowHalf);
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0));
    refuse(EACCES);
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0) return Status();
  return Unsupported("this system takes no filter of system calls: {}", std::strerror(errno));
}

}  // namespace

Status EnterSandbox(const Sandbox& sandbox) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return Unsupported("this system does not let a program give up rights: {}", std::strerror(errno));
  }
  const Status files = ConfineFiles(sandbox);
  const Status calls = ConfineCalls(sandbox.network);
  return files.ok() ? calls : files;
}

#else

Status EnterSandbox(const Sandbox&) { return Unsupported("there is no sandbox on this system"); }

#endif

}  // namespace weir
