// SPDX-License-Identifier: Apache-2.0
// A proxy on 127.0.0.1 in front of a store, which does to its connections what networks and services do.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace weir::testing {

class FaultProxy {
 public:
  enum class Fault {
    kNone,
    kSlow,       // an answer comes after delay_ms
    kError,      // HTTP 503 or, with a number of requests let through, after them; Redis: -LOADING
    kReset,      // the connection is reset before the request is passed on
    kResetLate,  // it is passed on, and its answer never comes
    kTruncated,  // half of the answer comes
  };

  // To 127.0.0.1:port. `http`: answers of kError are HTTP's.
  FaultProxy(int port, bool http) : to_(port), http_(http) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(here);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&here), size) != 0 || listen(listener_, 64) != 0) return;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size);
    port_ = ntohs(here.sin_port);
    thread_ = std::thread([this] { Accept(); });
  }
  ~FaultProxy() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
    for (std::thread& thread : connections_) thread.join();
    close(listener_);
  }
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  int port() const { return port_; }
  // What happens to the next `times` requests (-1: all) of every connection together.
  void Do(Fault fault, int times = -1, int delay_ms = 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fault_ = fault;
    times_ = times;
    delay_ms_ = delay_ms;
  }
  int n_faults() const { return n_faults_; }

 private:
  void Accept() {
    while (!ended_) {
      pollfd one{listener_, POLLIN, 0};
      if (poll(&one, 1, 20) <= 0) continue;
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client >= 0) connections_.emplace_back([this, client] { Serve(client); });
    }
  }
  Fault Next(int* delay_ms) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fault_ == Fault::kNone || times_ == 0) return Fault::kNone;
    if (times_ > 0) --times_;
    ++n_faults_;
    *delay_ms = delay_ms_;
    return fault_;
  }
  static void Reset(int fd) {
    const linger at_once{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
  }
  static bool Pass(int fd, const char* bytes, size_t n) {
    for (size_t at = 0; at < n;) {
      const ssize_t sent = send(fd, bytes + at, n - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
    }
    return true;
  }
  // A request is what comes after an answer.
  void Serve(int client) {
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in there{};
    there.sin_family = AF_INET;
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    there.sin_port = htons(static_cast<uint16_t>(to_));
    bool open = connect(server, reinterpret_cast<sockaddr*>(&there), sizeof(there)) == 0, asked = false;
    Fault fault = Fault::kNone;
    int delay_ms = 0;
    std::vector<char> bytes(1 << 16);
    while (open && !ended_) {
      pollfd both[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
      if (poll(both, 2, 20) <= 0) continue;
      if (both[0].revents != 0) {
        const ssize_t n = recv(client, bytes.data(), bytes.size(), 0);
        if (n <= 0) break;
        if (!asked) {
          asked = true;
          fault = Next(&delay_ms);
        }
        if (fault == Fault::kReset) {
          close(server);
          return Reset(client);
        }
        if (fault == Fault::kError) {
          const std::string said = http_ ? "HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: "
                                           "37\r\n\r\n<Error><Code>SlowDown</Code></Error>\r\n"
                                         : "-LOADING Redis is loading the dataset in memory\r\n";
          (void)Pass(client, said.data(), said.size());
          shutdown(client, SHUT_WR);
          while (recv(client, bytes.data(), bytes.size(), 0) > 0) {
          }
          break;
        }
        open = Pass(server, bytes.data(), static_cast<size_t>(n));
      }
      if (open && both[1].revents != 0) {
        const ssize_t n = recv(server, bytes.data(), bytes.size(), 0);
        if (n <= 0) break;
        if (asked && fault == Fault::kSlow) {
          for (int left = delay_ms; left > 0 && !ended_; left -= 10) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
          }
        }
        asked = false;
        if (fault == Fault::kResetLate) {
          close(server);
          return Reset(client);
        }
        const size_t most = fault == Fault::kTruncated ? static_cast<size_t>(n) - 1 - static_cast<size_t>(n) / 8
                                                       : static_cast<size_t>(n);
        open = Pass(client, bytes.data(), most) && fault != Fault::kTruncated;
      }
    }
    close(server);
    close(client);
  }

  const int to_;
  const bool http_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> ended_{false};
  std::atomic<int> n_faults_{0};
  std::mutex mutex_;
  Fault fault_ = Fault::kNone;
  int times_ = 0, delay_ms_ = 0;
  std::thread thread_;
  std::vector<std::thread> connections_;
};

}  // namespace weir::testing
