// SPDX-License-Identifier: Apache-2.0
#include "serve/waiting_room.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "base/caught.h"

namespace weir {
namespace {

constexpr size_t kReadBytes = 4096;
constexpr int64_t kAllHeadBytes = 8 << 20;
constexpr std::chrono::seconds kEnding{1};
constexpr int kLook = 200;  // ms between looks at the clock
constexpr size_t kMaxUrgent = 64;

// The end of the head as the HTTP library sees it: an empty line.
bool HasHead(std::string_view bytes, size_t from) {
  return bytes.find("\n\r\n", from < 2 ? 0 : from - 2) != std::string_view::npos;
}

std::string_view NextWord(std::string_view* line) {
  const size_t n = std::min(line->find_first_of(" ?\r\n"), line->size());
  const std::string_view word = line->substr(0, n);
  line->remove_prefix(std::min(n + 1, line->size()));
  return word;
}

}  // namespace

WaitingRoom::WaitingRoom(const Limits& limits, Calls calls) : limits_(limits), calls_(std::move(calls)) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_;
  alone_ = epoll_ < 0 || wake_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0;
  if (alone_) return;
  // If the system allows fewer threads, fewer requests are answered at once.
  try {
    threads_.emplace_back([this] { Watch(); });
    threads_.emplace_back([this] { Answer(false); });
    threads_.emplace_back([this] { Answer(true); });
    for (int i = 1; i < limits_.n_threads; ++i) threads_.emplace_back([this] { Answer(false); });
  } catch (const std::exception&) {
  }
  alone_ = threads_.size() < 2;
}

void WaitingRoom::Add(int socket) {
  const Clock::time_point deadline = Clock::now() + limits_.timeout;
  if (alone_) return calls_.answer({socket, "", deadline});
  const bool added = Tried([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    new_.push_back({{socket, "", deadline}, false});
  });
  if (!added) {
    close(socket);
    return;
  }
  (void)!eventfd_write(wake_, 1);
}

void WaitingRoom::Close(int socket) {
  shutdown(socket, SHUT_WR);
  (void)Tried([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!alone_ && !stop_) {
      new_.push_back({{socket, "", Clock::now() + kEnding}, true});
      socket = -1;
    }
  });
  if (socket >= 0) {
    close(socket);
  } else {
    (void)!eventfd_write(wake_, 1);
  }
}

void WaitingRoom::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  ready_changed_.notify_all();
  urgent_changed_.notify_all();
  if (wake_ >= 0) (void)!eventfd_write(wake_, 1);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  // What the watching thread passed on after the others had ended.
  for (std::deque<Arrival>* queue : {&urgent_, &ready_}) {
    for (Arrival& arrival : std::exchange(*queue, {})) calls_.answer(std::move(arrival));
  }
  for (List* list : {&silent_, &ending_}) {
    while (!list->empty()) Drop(list, list->begin());
  }
  for (const Waiting& waiting : std::exchange(new_, {})) close(waiting.arrival.socket);
  for (int* fd : {&epoll_, &wake_}) {
    if (*fd >= 0) close(std::exchange(*fd, -1));
  }
}

void WaitingRoom::Watch() {
  epoll_event events[64];
  for (;;) {
    const int n = epoll_wait(epoll_, events, std::size(events), by_socket_.empty() ? -1 : kLook);
    for (int i = 0; i < n; ++i) {
      if (events[i].data.fd == wake_) {
        eventfd_t count;
        (void)!eventfd_read(wake_, &count);
      } else {
        Receive(events[i].data.fd);
      }
    }
    // After the events: a number that was closed above may stand for a new connection.
    TakeNew();
    DropLate();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return;
  }
}

void WaitingRoom::TakeNew() {
  std::vector<Waiting> added;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    added.swap(new_);
  }
  for (Waiting& waiting : added) {
    const int socket = waiting.arrival.socket;
    List* const list = waiting.ends ? &ending_ : &silent_;
    if (static_cast<int>(list->size()) >= limits_.max_silent) Drop(list, list->begin());
    const bool listed = Tried([&] {
      const auto [place, is_new] = by_socket_.emplace(socket, List::iterator());
      list->push_back(std::move(waiting));
      place->second = std::prev(list->end());
    });
    if (!listed) {
      by_socket_.erase(socket);
      close(socket);
      continue;
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.fd = socket;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) != 0) Drop(list, std::prev(list->end()));
  }
}

void WaitingRoom::Receive(int socket) {
  const auto found = by_socket_.find(socket);
  if (found == by_socket_.end()) return;  // dropped in this round
  const List::iterator at = found->second;
  char bytes[kReadBytes];
  const ssize_t n = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (at->ends) {
    if (n <= 0) Drop(&ending_, at);
    return;
  }
  std::string& early = at->arrival.early;
  if (n < 0 || (n == 0 && early.empty())) return Drop(&silent_, at);
  const size_t before = early.size();
  if (!Tried([&] { early.append(bytes, static_cast<size_t>(n)); })) return Drop(&silent_, at);
  silent_bytes_ += n;
  // A head that ends too early or grows too long is refused by the one who reads it.
  if (n > 0 && !HasHead(early, before) && static_cast<int64_t>(early.size()) < limits_.max_head_bytes) {
    // Those who have sent a part and no more make room, oldest first.
    for (List::iterator next = silent_.begin(); silent_bytes_ > kAllHeadBytes && next != silent_.end();) {
      const List::iterator one = next++;
      if (!one->arrival.early.empty()) Drop(&silent_, one);
    }
    return;
  }
  epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
  silent_bytes_ -= static_cast<int64_t>(early.size());
  Arrival arrival = std::move(at->arrival);
  by_socket_.erase(found);
  silent_.erase(at);
  PassOn(std::move(arrival));
}

void WaitingRoom::PassOn(Arrival arrival) {
  const int socket = arrival.socket;
  bool refused = false;
  std::string_view line = arrival.early;
  const std::string_view method = NextWord(&line), path = NextWord(&line);
  const bool urgent = calls_.urgent(method, path);
  const size_t most = urgent ? kMaxUrgent : static_cast<size_t>(limits_.max_ready);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::deque<Arrival>& queue = urgent ? urgent_ : ready_;
    refused = queue.size() >= most || !Tried([&] { queue.push_back(std::move(arrival)); });
    if (!refused) LookForRoom();
  }
  if (refused) {
    calls_.refuse(socket);
    return Close(socket);
  }
  if (urgent) urgent_changed_.notify_one();
  ready_changed_.notify_one();
}

// A request that an idle thread is about to take does not wait.
void WaitingRoom::LookForRoom() { crowded_.store(std::ssize(ready_) > n_idle_, std::memory_order_relaxed); }

void WaitingRoom::Drop(List* list, List::iterator at) {
  silent_bytes_ -= static_cast<int64_t>(at->arrival.early.size());
  by_socket_.erase(at->arrival.socket);
  close(at->arrival.socket);  // leaves epoll_ by itself
  list->erase(at);
}

void WaitingRoom::DropLate() {
  const Clock::time_point now = Clock::now();
  for (List* list : {&silent_, &ending_}) {
    while (!list->empty() && list->front().arrival.deadline <= now) Drop(list, list->begin());
  }
}

void WaitingRoom::Answer(bool urgent_only) {
  for (;;) {
    Arrival arrival;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      n_idle_ += !urgent_only;
      (urgent_only ? urgent_changed_ : ready_changed_).wait(lock, [&] {
        return stop_ || !urgent_.empty() || (!urgent_only && !ready_.empty());
      });
      std::deque<Arrival>& queue = !urgent_.empty() || urgent_only ? urgent_ : ready_;
      n_idle_ -= !urgent_only;
      if (queue.empty()) return;
      arrival = std::move(queue.front());
      queue.pop_front();
      LookForRoom();
    }
    calls_.answer(std::move(arrival));
  }
}

}  // namespace weir
