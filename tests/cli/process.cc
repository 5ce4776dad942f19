// SPDX-License-Identifier: Apache-2.0
#include "cli/process.h"
#include "base/clock.h"
#include "support/build_paths.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace weir::testing {
namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    Close(&read);
    Close(&write);
  }
  static void Close(int* fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
};

// Appends the available bytes; false at the end.
bool Drain(int fd, std::string* to) {
  char buffer[1 << 14];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n > 0) to->append(buffer, static_cast<size_t>(n));
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

[[noreturn]] void Child(const std::vector<char*>& argv, const RunOptions& options, const Pipe& in, const Pipe& out,
                        const Pipe& err) {
  signal(SIGPIPE, SIG_DFL);
  int to = out.write;
  if (!options.output_path.empty()) to = open(options.output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const bool ready = to >= 0 && dup2(in.read, STDIN_FILENO) >= 0 && dup2(to, STDOUT_FILENO) >= 0 &&
                     dup2(err.write, STDERR_FILENO) >= 0 &&
                     (options.directory.empty() || chdir(options.directory.c_str()) == 0);
  if (ready) execv(argv[0], argv.data());
  _exit(126);
}

}  // namespace

RunResult RunWeir(const std::vector<std::string>& arguments, const RunOptions& options) {
  RunResult result;
  signal(SIGPIPE, SIG_IGN);  // a program that stops reading is no error of ours
  std::vector<std::string> words = {ProgramPath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  Pipe in, out, err;
  const pid_t child = fork();
  if (child < 0) {
    ADD_FAILURE() << "cannot start " << ProgramPath();
    return result;
  }
  if (child == 0) Child(argv, options, in, out, err);
  Pipe::Close(&in.read);
  Pipe::Close(&out.write);
  Pipe::Close(&err.write);
  fcntl(in.write, F_SETFL, O_NONBLOCK);
  if (options.input.empty() && !options.silent_end) Pipe::Close(&in.write);

  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(options.timeout_s);
  Clock::time_point spoke = Clock::time_point::max();  // when the first line came
  int64_t n_in_bytes = 0;
  bool interrupted = false;
  while (out.read >= 0 || err.read >= 0) {
    const bool now = (options.interrupt_after_in_bytes >= 0 && n_in_bytes >= options.interrupt_after_in_bytes) ||
                     (options.interrupt_after_out_bytes >= 0 &&
                      static_cast<int64_t>(result.out.size()) >= options.interrupt_after_out_bytes) ||
                     (options.interrupt_after_ms >= 0 && !result.err.empty() &&
                      Clock::now() - spoke >= std::chrono::milliseconds(options.interrupt_after_ms));
    if (now && !interrupted) {
      interrupted = true;
      kill(child, SIGINT);
    }
    if (Clock::now() > deadline) {
      result.timed_out = true;
      kill(child, SIGKILL);
      break;
    }
    const bool all_in = !options.endless_input && n_in_bytes >= static_cast<int64_t>(options.input.size());
    pollfd fds[3] = {{all_in ? -1 : in.write, POLLOUT, 0}, {out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
    if (poll(fds, 3, 200) <= 0) continue;
    if (fds[0].revents != 0) {
      const size_t at = static_cast<size_t>(n_in_bytes) % options.input.size();
      const ssize_t n = write(in.write, options.input.data() + at, options.input.size() - at);
      if (n > 0) n_in_bytes += n;
      const bool all =
          !options.endless_input && !options.silent_end && n_in_bytes >= static_cast<int64_t>(options.input.size());
      if (all || (n < 0 && errno != EAGAIN && errno != EINTR)) Pipe::Close(&in.write);
    }
    if (fds[1].revents != 0 && !Drain(out.read, &result.out)) Pipe::Close(&out.read);
    if (fds[2].revents != 0 && !Drain(err.read, &result.err)) Pipe::Close(&err.read);
    if (!result.err.empty()) spoke = std::min(spoke, Clock::now());
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

TempDir::TempDir() {
  std::string path = (std::filesystem::temp_directory_path() / "weir-cli-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) ADD_FAILURE() << "cannot make " << path;
  path_ = path;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::Write(const std::string& name, const std::string& bytes) const {
  std::ofstream file(File(name), std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) ADD_FAILURE() << "cannot write " << File(name);
  return File(name);
}

std::vector<std::string> TempDir::Names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace weir::testing
