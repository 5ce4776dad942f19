// SPDX-License-Identifier: Apache-2.0
// Stores to test with: a folder, S3 played by moto (tools/load/s3_server.py, if the Python that WEIR_PYTHON names has
// it), and Debian's redis-server, if it is installed.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "store/stores/store.h"
#include "support/build_paths.h"

namespace weir::testing {

// A program that ends with the test, and the first line it prints.
class Helper {
 public:
  explicit Helper(std::vector<std::string> words) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) return;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execvp(argv[0], argv.data());
      _exit(77);
    }
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  ~Helper() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(in_);
    close(out_);
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  pid_t pid() const { return child_; }

  // Empty: it ended, or said nothing for a minute.
  std::string Line() const {
    std::string line;
    for (char c = 0; line.size() < 4096;) {
      pollfd one{out_, POLLIN, 0};
      if (poll(&one, 1, 60000) <= 0 || read(out_, &c, 1) != 1) return "";
      if (c == '\n') return line;
      line += c;
    }
    return line;
  }

 private:
  pid_t child_ = -1;
  int in_ = -1, out_ = -1;
};

class StorePlace {
 public:
  // One for all tests of a kind: moto takes seconds to start.
  static StorePlace& Of(const std::string& kind) {
    static std::map<std::string, std::unique_ptr<StorePlace>> places;
    auto& place = places[kind];
    if (place == nullptr) place = std::make_unique<StorePlace>(kind);
    return *place;
  }
  // kind: folder, s3 or redis. skip() says why there is none.
  explicit StorePlace(const std::string& kind) {
    std::string folder = (std::filesystem::temp_directory_path() / "weir-store-XXXXXX").string();
    folder_ = mkdtemp(folder.data());
    options_.spool = folder_;
    options_.timeout = std::chrono::milliseconds(5000);
    if (kind == "folder") {
      address_ = folder_;
    } else if (kind == "s3") {
      const char* const python = std::getenv("WEIR_PYTHON");
      helper_ = std::make_unique<Helper>(std::vector<std::string>{python == nullptr ? "/usr/bin/python3" : python,
                                                                  SourceDir() + "/tools/load/s3_server.py", "weir"});
      port_ = std::atoi(helper_->Line().c_str());
      if (port_ == 0) skip_ = "moto is not there: pip install 'moto[server]' for the Python that WEIR_PYTHON names";
      options_.s3_endpoint = "http://127.0.0.1:" + std::to_string(port_);
      options_.s3_key = "key";
      options_.s3_secret = "secret";
      address_ = "s3://weir/some/place";
    } else {
      StartRedis();
    }
  }
  ~StorePlace() {
    helper_.reset();
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  StorePlace(const StorePlace&) = delete;
  StorePlace& operator=(const StorePlace&) = delete;

  const std::string& skip() const { return skip_; }
  const std::string& address() const { return address_; }
  const StoreOptions& options() const { return options_; }
  int port() const { return port_; }  // 0: a folder
  const std::string& folder() const { return folder_; }
  // The same place through another port.
  std::unique_ptr<Store> Open(int port = 0, StoreOptions* with = nullptr) const {
    StoreOptions options = with == nullptr ? options_ : *with;
    std::string address = address_;
    if (port != 0 && !options.s3_endpoint.empty()) options.s3_endpoint = "http://127.0.0.1:" + std::to_string(port);
    if (port != 0 && options.s3_endpoint.empty()) address = "redis://127.0.0.1:" + std::to_string(port) + "/2";
    auto store = OpenStore(address, options);
    return store.ok() ? *std::move(store) : nullptr;
  }

 private:
  void StartRedis() {
    for (int attempt = 0; attempt < 20; ++attempt) {
      port_ = 20000 + static_cast<int>(
                          (static_cast<unsigned>(getpid()) * 7919u + static_cast<unsigned>(attempt) * 101u) % 20000u);
      helper_ = std::make_unique<Helper>(std::vector<std::string>{
          "redis-server", "--bind", "127.0.0.1", "--port", std::to_string(port_), "--save", "", "--dir", folder_});
      address_ = "redis://127.0.0.1:" + std::to_string(port_) + "/2";
      for (int i = 0; i < 100; ++i) {
        int code = 0;
        if (waitpid(helper_->pid(), &code, WNOHANG) != 0) {
          if (WIFEXITED(code) && WEXITSTATUS(code) == 77) {
            skip_ = "redis-server is not installed";
            return;
          }
          break;  // the port is taken
        }
        StoreOptions options = options_;
        options.tries = 1;
        if (OpenStore(address_, options).ok()) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
    skip_ = "redis-server does not start";
  }

  std::string folder_, address_, skip_;
  StoreOptions options_;
  std::unique_ptr<Helper> helper_;
  int port_ = 0;
};

}  // namespace weir::testing
