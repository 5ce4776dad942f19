// SPDX-License-Identifier: Apache-2.0
#include "media/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/caught.h"

extern char** environ;

#ifdef __GLIBC__
#define WEIR_CAN_CLOSE_FROM __GLIBC_PREREQ(2, 34)
#else
#define WEIR_CAN_CLOSE_FROM 0
#endif

namespace weir {
namespace {

constexpr size_t kMaxErrorBytes = 4096;
constexpr std::chrono::milliseconds kTick{50};  // how soon a stop request is noticed

// "[png @ 0x55d0c0ffee00] bad" -> "[png] bad": addresses in the child's memory tell nobody anything useful.
std::string WithoutAddresses(std::string line) {
  constexpr std::string_view kAt = " @ 0x";
  for (size_t at = 0; (at = line.find(kAt, at)) != line.npos;) {
    const size_t end = std::min(line.find_first_not_of("0123456789abcdef", at + kAt.size()), line.size());
    line.erase(at, end - at);
  }
  return line;
}

void Close(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

// Both ends are close-on-exec: a child started at the same moment by another thread must not inherit them.
struct Pipe {
  int ends[2] = {-1, -1};
  Status Open() {
    if (pipe2(ends, O_CLOEXEC) == 0) return Status();
    return IoError("cannot open a pipe: {}", std::strerror(errno));
  }
  ~Pipe() {
    Close(&ends[0]);
    Close(&ends[1]);
  }
  int Release() {
    const int fd = ends[0];
    ends[0] = -1;
    return fd;
  }
};

struct SpawnSettings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnSettings() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

void Limit(pid_t pid, __rlimit_resource what, int64_t value) {
  if (value <= 0) return;
  const rlimit limit = {static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  prlimit(pid, what, &limit, nullptr);
}

// Nobody plans what decoding takes: a picture of some KB may ask for hundreds of MB. Where they are not there, as in a
// control group, the kernel ends the process that holds most, which may be ours; so it is told to take the child. Where
// there is no such file, or we may not write it, nothing changes.
void EndFirstWhereMemoryIsShort(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/oom_score_adj";
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t wrote = write(fd, "1000", 4);
  close(fd);
}

// Runs `start` where a program that it starts inherits the sandbox: in a thread that gives up its rights and ends.
template <typename Start>
Status InSandbox(const Sandbox& sandbox, const Start& start) {
  Status entered;
  try {
    std::thread([&] {
      entered = Caught([&] {
        Status status = EnterSandbox(sandbox);
        if (status.code() != StatusCode::kIo) start();
        return status;
      });
    }).join();
  } catch (const std::system_error& error) {
    return IoError("no thread to start a program in: {}", error.what());
  }
  return entered.code() == StatusCode::kUnsupported ? Status() : entered;
}

}  // namespace

std::string ChildVariable(std::string_view name) {
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry = *at;
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return std::string(entry.substr(name.size() + 1));
    }
  }
  return "";
}

Result<std::unique_ptr<Child>> Child::Start(const std::vector<std::string>& argv, int stdin_fd,
                                            const ChildLimits& limits, ChildErrors errors, const Sandbox* sandbox) {
  if (argv.empty() || argv[0].empty()) return InvalidArgument("a child process needs a program");
  Pipe out, err;
  WEIR_RETURN_IF_ERROR(out.Open());
  WEIR_RETURN_IF_ERROR(err.Open());

  SpawnSettings spawn;
  if (stdin_fd >= 0) {
    posix_spawn_file_actions_adddup2(&spawn.actions, stdin_fd, STDIN_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&spawn.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&spawn.actions, out.ends[1], STDOUT_FILENO);
  const Pipe& of_errors = errors == ChildErrors::kAsOutput ? out : err;
  posix_spawn_file_actions_adddup2(&spawn.actions, of_errors.ends[1], STDERR_FILENO);
#if WEIR_CAN_CLOSE_FROM
  // Not descriptors that our host process opened without O_CLOEXEC: a child that holds the write end of the pipe it
  // reads from never sees its end.
  posix_spawn_file_actions_addclosefrom_np(&spawn.actions, STDERR_FILENO + 1);
#endif
  // Its own process group: the interrupt key is for us, and killing the group kills everything the child started.
  // Signals are reset to their defaults, whatever our host process blocks or ignores.
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  sigaddset(&usual, SIGCHLD);
  posix_spawnattr_setpgroup(&spawn.attributes, 0);
  posix_spawnattr_setsigmask(&spawn.attributes, &none);
  posix_spawnattr_setsigdefault(&spawn.attributes, &usual);
  posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::unique_ptr<Child> child(new Child);
  child->name_ = argv[0].substr(argv[0].rfind('/') + 1);
  child->limits_ = limits;
  child->started_ = Clock::now();
  int error = 0;
  const auto start = [&] {
    error = posix_spawnp(&child->pid_, words[0], &spawn.actions, &spawn.attributes, words.data(), environ);
  };
  if (sandbox == nullptr) {
    start();
  } else {
    WEIR_RETURN_IF_ERROR(InSandbox(*sandbox, start));
  }
  if (error != 0) {
    child->pid_ = -1;
    if (error == ENOENT || error == EACCES) {
      return NotFound("cannot start {}: {}", argv[0], std::strerror(error));
    }
    return IoError("cannot start {}: {}", argv[0], std::strerror(error));
  }
  // posix_spawn cannot set limits. They are in force long before the child has opened its input.
  Limit(child->pid_, RLIMIT_CPU, limits.cpu_s);
  Limit(child->pid_, RLIMIT_AS, limits.memory_bytes);
  EndFirstWhereMemoryIsShort(child->pid_);
  child->out_ = out.Release();
  child->err_ = err.Release();
  fcntl(child->out_, F_SETFL, O_NONBLOCK);
  fcntl(child->err_, F_SETFL, O_NONBLOCK);
  return child;
}

Child::~Child() {
  Kill();
  Close(&out_);
  Close(&err_);
}

void Child::Kill() {
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);  // the group may not exist yet
  Reap(/*wait=*/true);
}

bool Child::Reap(bool wait) {
  if (pid_ < 0) return true;
  pid_t got;
  rusage used = {};
  do {
    got = wait4(pid_, &wait_status_, wait ? 0 : WNOHANG, &used);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return false;
  if (got < 0) wait_status_ = 0;  // the host process ignores SIGCHLD: there is no exit status
  cpu_ms_ =
      1000 * (used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
  pid_ = -1;
  return true;
}

void Child::DrainErrors() {
  char buffer[1024];
  while (err_ >= 0) {
    const ssize_t n = read(err_, buffer, sizeof(buffer));
    if (n > 0) {
      errors_.append(buffer, std::min(static_cast<size_t>(n), kMaxErrorBytes - errors_.size()));
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      if (n == 0 || errno != EAGAIN) Close(&err_);
      return;
    }
  }
}

bool Child::Poll(Clock::time_point until) {
  pollfd fds[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};  // negative descriptors are ignored
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  const int n = poll(fds, 2, static_cast<int>(std::clamp<int64_t>(left, 0, kTick.count())));
  if (n > 0 && fds[1].revents != 0) DrainErrors();
  if (n > 0 && fds[0].revents != 0) readable_ = true;
  return n > 0 || Clock::now() < until;
}

Result<int64_t> Child::Read(uint8_t* to, int64_t n, const std::atomic<bool>* stop) {
  if (out_ < 0 || n <= 0) return int64_t{0};
  const Clock::time_point never = Clock::time_point::max();
  const Clock::time_point wall = limits_.wall_ms > 0 ? started_ + std::chrono::milliseconds(limits_.wall_ms) : never;
  const Clock::time_point stall =
      limits_.stall_ms > 0 ? Clock::now() + std::chrono::milliseconds(limits_.stall_ms) : never;
  while (true) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
      Kill();
      return Cancelled("stopped while reading from {}", name_);
    }
    const ssize_t got = read(out_, to, static_cast<size_t>(n));
    if (got > 0) return static_cast<int64_t>(got);
    if (got == 0) {
      Close(&out_);
      return int64_t{0};
    }
    if (errno != EAGAIN && errno != EINTR) {
      Kill();
      return IoError("cannot read from {}: {}", name_, std::strerror(errno));
    }
    const Clock::time_point until = std::min(wall, stall);
    if (Poll(until == never ? Clock::now() + kTick : until)) continue;
    if (until == never) continue;
    Kill();
    return until == wall ? IoError("{} took longer than {} ms and was ended", name_, limits_.wall_ms)
                         : IoError("{} gave nothing for {} ms and was ended", name_, limits_.stall_ms);
  }
}

Status Child::Finish(const std::atomic<bool>* stop) {
  Close(&out_);
  const auto stopped = [stop] { return stop != nullptr && stop->load(std::memory_order_relaxed); };
  const Clock::time_point never = Clock::time_point::max();
  const Clock::time_point wall = limits_.wall_ms > 0 ? started_ + std::chrono::milliseconds(limits_.wall_ms) : never;
  const Clock::time_point ending =
      limits_.ending_ms > 0 ? Clock::now() + std::chrono::milliseconds(limits_.ending_ms) : never;
  const Clock::time_point until = std::min(wall, ending);
  // Standard error ends with the child, or a little earlier.
  while (err_ >= 0 && Clock::now() < until && !stopped() && !Reap(false)) Poll(std::min(until, Clock::now() + kTick));
  DrainErrors();
  for (std::chrono::milliseconds pause{1}; !Reap(false); pause = std::min(2 * pause, kTick)) {
    if (stopped()) {
      Kill();
      return Cancelled("stopped while waiting for the end of {}", name_);
    }
    if (Clock::now() >= until) {
      Kill();
      return until == wall ? IoError("{} took longer than {} ms and was ended", name_, limits_.wall_ms)
                           : IoError("{} did not end and was ended", name_);
    }
    std::this_thread::sleep_for(pause);
  }
  return Failure();
}

Status Child::Failure() const {
  if (WIFEXITED(wait_status_) && WEXITSTATUS(wait_status_) == 0) return Status();
  if (WIFSIGNALED(wait_status_)) {
    const int sig = WTERMSIG(wait_status_);
    // The kernel kills by its own accounting, and on a loaded machine reports a smaller time.
    const bool spent = limits_.cpu_s > 0 && (sig == SIGXCPU || sig == SIGKILL) && cpu_ms_ >= 500 * limits_.cpu_s;
    return spent ? IoError("{} used more than {} s of processor time and was ended", name_, limits_.cpu_s)
                 : IoError("{} was ended by signal {}", name_, sig);
  }
  const std::string line = Complaint();
  return line.empty() ? Corrupt("{} failed with code {}", name_, WEXITSTATUS(wait_status_))
                      : Corrupt("{}: {}", name_, line);
}

std::string Child::Complaint() const {
  // The first line describes the error; control characters from untrusted files are kept out of our messages.
  std::string line = WithoutAddresses(errors_.substr(0, std::min(errors_.find('\n'), size_t{300})));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line;
}

}  // namespace weir
