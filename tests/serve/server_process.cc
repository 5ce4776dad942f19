// SPDX-License-Identifier: Apache-2.0
#include "serve/server_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "support/build_paths.h"
#include "support/golden.h"

namespace weir::testing {
namespace {

HttpAnswer ToAnswer(const httplib::Result& result) {
  HttpAnswer out;
  if (!result) return out;
  out.status = result->status;
  out.body = result->body;
  out.content_type = result->get_header_value("Content-Type");
  for (const char* name : {"x-session-id", "Mcp-Session-Id"}) {
    if (result->has_header(name)) out.session_id = result->get_header_value(name);
  }
  return out;
}

httplib::Headers HeadersOf(const std::string& key) {
  httplib::Headers headers;
  if (!key.empty()) headers.emplace("Authorization", "Bearer " + key);
  return headers;
}

// Whether every thread of the process sleeps: it waits for something, and is neither stopped nor short of a processor.
bool IsAsleep(pid_t process) {
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), error)) {
    std::ifstream file(thread.path() / "stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t at = text.rfind(") ");
    if (at != text.npos && text[at + 2] != 'S' && text[at + 2] != 'Z') return false;
  }
  return true;
}

}  // namespace

std::vector<Json> HttpAnswer::events(bool* done) const {
  std::vector<Json> out;
  bool ended = false;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << "an event without an end: " << body.substr(at);
    if (end == std::string::npos) break;
    const std::string line = body.substr(at, end - at);
    at = end + 2;
    if (line.rfind(':', 0) == 0) continue;  // a comment, which a slow machine may meet anywhere
    EXPECT_EQ(line.rfind("data: ", 0), 0u) << line;
    EXPECT_FALSE(ended) << "after [DONE]: " << line;
    if (line == "data: [DONE]") {
      ended = true;
    } else {
      out.push_back(Json::parse(line.substr(6), nullptr, false));
      EXPECT_TRUE(out.back().is_object()) << line;
    }
  }
  if (done != nullptr) *done = ended;
  return out;
}

ServerProcess::ServerProcess(const std::vector<std::string>& more, const std::string& model) {
  signal(SIGPIPE, SIG_IGN);
  const std::string file = model.find('/') == std::string::npos ? GoldenDir() + model + ".gguf" : model;
  std::vector<std::string> words = {ProgramPath(), "serve", "-m", file, "--port", "0"};
  if (std::find(more.begin(), more.end(), "-t") == more.end()) words.insert(words.end(), {"-t", "1"});
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  child_ = fork();
  if (child_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that dies takes its server along
    dup2(ends[1], STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(126);
  }
  close(ends[1]);
  err_ = ends[0];
  std::string said;
  int waits = 0, asleep = 0;  // tenths of a second, and those in which it did not want to run
  for (char c; port_ == 0;) {
    pollfd fd{err_, POLLIN, 0};
    const int ready = poll(&fd, 1, 100);
    if (ready == 0 && waits < 9000 && asleep < 600) {
      ++waits, asleep += IsAsleep(child_);
      continue;
    }
    if (ready <= 0 || read(err_, &c, 1) != 1) break;
    said += c;
    const size_t at = said.find("http://127.0.0.1:");
    if (c == '\n' && at != std::string::npos) port_ = std::atoi(said.c_str() + at + 17);
  }
  if (port_ == 0) {
    ADD_FAILURE() << "the server does not serve; of " << waits / 10 << " s it slept " << asleep / 10 << ": " << said;
  }
}

ServerProcess::~ServerProcess() {
#ifdef WEIR_COUNTS_LINES
  if (child_ > 0) (void)Terminate();  // a program that is killed writes no counts
#endif
  Kill();
  if (err_ >= 0) close(err_);
}

HttpAnswer ServerProcess::Get(const std::string& path, const std::string& key) const {
  httplib::Client client("127.0.0.1", port_);
  client.set_read_timeout(120);
  return ToAnswer(client.Get(path.c_str(), HeadersOf(key)));
}

HttpAnswer ServerProcess::PostText(const std::string& path, const std::string& body, const std::string& key) const {
  httplib::Client client("127.0.0.1", port_);
  client.set_read_timeout(120);
  client.set_write_timeout(30);
  return ToAnswer(client.Post(path.c_str(), HeadersOf(key), body, "application/json"));
}

HttpAnswer ServerProcess::Post(const std::string& path, const Json& body, const std::string& key) const {
  return PostText(path, body.dump(), key);
}

HttpAnswer ServerProcess::PostWith(const std::string& path, const Json& body,
                                   const std::vector<std::pair<std::string, std::string>>& headers) const {
  httplib::Client client("127.0.0.1", port_);
  client.set_read_timeout(120);
  httplib::Headers all;
  for (const auto& [name, value] : headers) all.emplace(name, value);
  return ToAnswer(client.Post(path.c_str(), all, body.dump(), "application/json"));
}

HttpAnswer ServerProcess::Delete(const std::string& path) const {
  httplib::Client client("127.0.0.1", port_);
  client.set_read_timeout(120);
  return ToAnswer(client.Delete(path.c_str()));
}

int ServerProcess::Connect() const {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

std::string ServerProcess::Raw(const std::string& bytes, bool leave) const {
  const int fd = Connect();
  if (fd < 0) return "";
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  char buffer[4096];
  while (!leave) {
    pollfd wait{fd, POLLIN, 0};
    if (poll(&wait, 1, 30000) <= 0) break;
    const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
    if (n <= 0) break;
    out.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return out;
}

void ServerProcess::Signal(int number) const {
  if (child_ > 0) kill(child_, number);
}

void ServerProcess::Kill() {
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  child_ = -1;
}

int ServerProcess::Terminate() {
  kill(child_, SIGTERM);
  for (int i = 0; i < 400; ++i) {
    int status = 0;
    if (waitpid(child_, &status, WNOHANG) == child_) {
      child_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    usleep(50000);
  }
  return -1;
}

void ServerProcess::Pause() const { kill(child_, SIGSTOP); }
void ServerProcess::GoOn() const { kill(child_, SIGCONT); }

bool ServerProcess::Running() const { return child_ > 0 && waitpid(child_, nullptr, WNOHANG) == 0; }

int64_t ServerProcess::ResidentBytes() const { return StatusBytes("VmRSS:"); }
int64_t ServerProcess::PeakResidentBytes() const { return StatusBytes("VmHWM:"); }

int64_t ServerProcess::StatusBytes(const std::string& what) const {
  std::ifstream file("/proc/" + std::to_string(child_) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(what, 0) == 0) return std::atoll(line.c_str() + what.size()) * 1024;
  }
  return 0;
}

}  // namespace weir::testing
