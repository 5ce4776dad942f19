// SPDX-License-Identifier: Apache-2.0
#include "serve/http_server.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace weir {
namespace {

constexpr int kBacklog = 1024;

// The connection that the current thread handles.
thread_local HttpConnection* current = nullptr;
thread_local bool overloaded = false;

// False on timeout, on a broken socket, or when `grace` has passed since the server began to stop.
bool Wait(int socket, short events, Clock::time_point deadline, const std::atomic<bool>& stop,
          Clock::duration grace = Clock::duration::zero()) {
  for (bool stopping = false;;) {
    const bool was_stopping = std::exchange(stopping, stop.load());
    if (stopping && !was_stopping) deadline = std::min(deadline, Clock::now() + grace);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd fd{socket, events, 0};
    const int n = poll(&fd, 1, static_cast<int>(std::min<int64_t>(left, 200)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
  return false;
}

void Peer(int socket, bool remote, std::string* ip, int* port) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  const int failed = remote ? getpeername(socket, reinterpret_cast<sockaddr*>(&address), &length)
                            : getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length);
  char host[NI_MAXHOST] = "", service[NI_MAXSERV] = "";
  if (failed != 0 || getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host, sizeof(host), service,
                                 sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  *ip = host;
  *port = std::atoi(service);
}

// The stream of one request's bytes, limited in size and time.
class LimitedStream : public httplib::Stream {
 public:
  LimitedStream(int socket, const HttpLimits& limits, const std::atomic<bool>& stop)
      : socket_(socket),
        stop_(stop),
        n_left_(limits.max_head_bytes),
        read_deadline_(Clock::now() + std::chrono::seconds(limits.request_timeout_s)),
        write_timeout_(limits.write_timeout_s) {}

  // The header was read; at most `n_bytes` more may follow.
  void StartBody(int64_t n_bytes) { n_left_ = n_bytes; }

  bool is_readable() const override { return begin_ < end_ || Wait(socket_, POLLIN, read_deadline_, stop_); }
  bool is_writable() const override {
    return Wait(socket_, POLLOUT, Clock::now() + write_timeout_, stop_, kLastWrite) && !Broken();
  }

  ssize_t read(char* to, size_t size) override {
    if (n_left_ <= 0) return -1;
    if (begin_ == end_) {
      if (!Wait(socket_, POLLIN, read_deadline_, stop_)) return -1;
      const ssize_t n = recv(socket_, buffer_, sizeof(buffer_), MSG_DONTWAIT);
      if (n <= 0) return n;
      begin_ = 0;
      end_ = static_cast<size_t>(n);
    }
    const size_t n = std::min({size, end_ - begin_, static_cast<size_t>(n_left_)});
    std::memcpy(to, buffer_ + begin_, n);
    begin_ += n;
    n_left_ -= static_cast<int64_t>(n);
    return static_cast<ssize_t>(n);
  }

  ssize_t write(const char* from, size_t size) override {
    if (!Wait(socket_, POLLOUT, Clock::now() + write_timeout_, stop_, kLastWrite)) return -1;
    return send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override { Peer(socket_, true, &ip, &port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { Peer(socket_, false, &ip, &port); }
  socket_t socket() const override { return socket_; }

 private:
  bool Broken() const {
    pollfd fd{socket_, POLLOUT, 0};
    return poll(&fd, 1, 0) < 0 || (fd.revents & (POLLERR | POLLHUP)) != 0;
  }

  const int socket_;
  const std::atomic<bool>& stop_;
  int64_t n_left_;
  const Clock::time_point read_deadline_;
  const std::chrono::seconds write_timeout_;
  char buffer_[4096];
  size_t begin_ = 0, end_ = 0;
  static constexpr std::chrono::seconds kLastWrite{1};  // a finished answer is still sent
};

// Closing a socket with unread bytes would reset the connection and lose the answer. Shut down our side instead, and
// drain incoming bytes for a moment.
void CloseGently(int socket, const std::atomic<bool>& stop) {
  shutdown(socket, SHUT_WR);
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
  char sink[1 << 14];
  while (Wait(socket, POLLIN, deadline, stop) && recv(socket, sink, sizeof(sink), MSG_DONTWAIT) > 0) {
  }
  close(socket);
}

// No length: it ends with the connection.
constexpr std::string_view kBusy =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    "{\"error\":{\"message\":\"the server has too many connections\",\"type\":\"server_error\",\"param\":null,"
    "\"code\":\"too_many_connections\"}}";

// A thread pool for connections, and one thread that rejects connections beyond its capacity.
class Workers : public httplib::TaskQueue {
 public:
  Workers(int n_threads, int max_queued) : max_queued_(static_cast<size_t>(max_queued)) {
    // If the system allows fewer threads, the server handles fewer connections at once.
    try {
      threads_.emplace_back([this] { TurnAway(); });
      for (int i = 0; i < n_threads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
    }
    alone_ = threads_.size() < 2;
  }
  void enqueue(std::function<void()> task) override {
    if (alone_) return task();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
    too_many_.notify_one();
  }
  void shutdown() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    ready_.notify_all();
    too_many_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        ready_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  // Rejects the newest connections: earlier ones keep their place in the queue.
  void TurnAway() {
    overloaded = true;
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        too_many_.wait(lock, [this] { return stop_ || tasks_.size() > max_queued_; });
        if (stop_) return;
        task = std::move(tasks_.back());
        tasks_.pop_back();
      }
      task();
    }
  }

  const size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable ready_, too_many_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  bool alone_ = false;  // no worker threads, only the accepting one
  std::vector<std::thread> threads_;
};

}  // namespace

bool HttpConnection::Alive() const {
  pollfd fd{socket_, POLLIN | POLLRDHUP, 0};
  if (poll(&fd, 1, 0) < 0) return errno == EINTR;
  return (fd.revents & (POLLERR | POLLHUP | POLLRDHUP | POLLNVAL)) == 0;
}

Status HttpConnection::Take(int64_t bytes) {
  if (bytes > bodies_.budget_bytes()) {
    return InvalidArgument(
        "this request would need {} bytes, but all requests together may hold {}; ask for less at once", bytes,
        bodies_.budget_bytes());
  }
  auto taken = bodies_.Reserve(MemTag::kOther, bytes);
  if (!taken.ok()) {
    return OverBudget("the server is busy: running requests hold {} of {} bytes; try again later", bodies_.used_bytes(),
                      bodies_.budget_bytes());
  }
  taken_.push_back(*std::move(taken));
  return Status();
}

HttpConnection* HttpConnection::Current() { return current; }

HttpServer::HttpServer(const HttpLimits& limits)
    : limits_(limits),
      bodies_(limits.max_bodies_bytes > 0
                  ? limits.max_bodies_bytes
                  : std::max<int64_t>(32 << 20, std::min(limits.max_body_bytes, INT64_MAX / 4) * 4)) {
  new_task_queue = [limits] { return new Workers(limits.n_threads, limits.max_queued); };
  set_payload_max_length(static_cast<size_t>(limits.max_body_bytes));
  // The library's own options let a second server share the port, so that each gets some of the requests. These do not,
  // but a port whose server has just ended can still be reused at once.
  set_socket_options([](socket_t socket) {
    const int yes = 1;
    (void)setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  });
}

Result<int> HttpServer::Bind(const std::string& address, int port) {
  const int asked = port;
  const bool bound = port == 0 ? (port = bind_to_any_port(address)) > 0 : bind_to_port(address, port);
  // The library's listen backlog is five; beyond it, clients retry after a second.
  if (!bound || ::listen(svr_sock_, kBacklog) != 0) {
    return IoError("cannot listen on {} port {}; is the port in use, or is the address not this machine's?", address,
                   asked);
  }
  return port;
}

void HttpServer::Shutdown() {
  if (is_running() && !stopping_.exchange(true)) stop();
}

bool HttpServer::process_and_close_socket(socket_t socket) {
  if (overloaded) {
    send(socket, kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(socket, SHUT_WR);
    close(socket);
    return false;
  }
  bool ok = false;
  {
    HttpConnection connection(socket, bodies_);
    current = &connection;
    LimitedStream stream(socket, limits_, stopping_);
    bool closed = true;
    ok = process_request(stream, /*close_connection=*/true, closed, [&](httplib::Request& request) {
      request.ranges.clear();  // range requests are not supported
      // The framing of a chunked body costs up to six bytes per byte; the size limit is enforced while the content is
      // read.
      stream.StartBody(limits_.max_body_bytes * 7 + (1 << 16));
    });
    current = nullptr;
  }
  CloseGently(socket, stopping_);
  return ok;
}

}  // namespace weir
