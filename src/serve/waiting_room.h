// SPDX-License-Identifier: Apache-2.0
// Where connections wait until the head of their request has arrived, and the threads that then answer it.
//
// A thread is spent on a request, never on a client that says nothing: one thread watches all other connections and
// receives their heads. A connection's time counts from the moment it was accepted. What is waited for is bounded in
// number and bytes; beyond that, the client that has been silent longest makes room for the newest, because a client
// that means to ask does so at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace weir {

class WaitingRoom {
 public:
  struct Limits {
    int n_threads = 64;                // requests at once
    int max_ready = 256;               // requests that wait for a thread; more are refused
    int max_silent = 256;              // connections without a whole head; another one takes the place of the oldest
    int64_t max_head_bytes = 1 << 16;  // of one head; a longer one is passed on as it is
    std::chrono::seconds timeout{60};
  };
  struct Arrival {
    int socket = -1;             // the receiver's to close
    std::string early;           // bytes that have been received: the head, and perhaps some of the body
    Clock::time_point deadline;  // for the rest
  };
  struct Calls {
    // Answers a request, on any of the threads, and gives the socket to Close() or closes it.
    std::function<void(Arrival)> answer;
    // Answers a request that is one too many, without blocking. The socket is closed afterwards.
    std::function<void(int socket)> refuse;
    // Whether a request ("GET", "/health") has a thread of its own. It must not wait for anything.
    std::function<bool(std::string_view method, std::string_view path)> urgent;
  };

  WaitingRoom(const Limits& limits, Calls calls);
  ~WaitingRoom() { Stop(); }
  WaitingRoom(const WaitingRoom&) = delete;
  WaitingRoom& operator=(const WaitingRoom&) = delete;

  // Takes a new connection.
  void Add(int socket);
  // Ends a connection whose answer was sent. Closing a socket with unread bytes would reset the connection and lose the
  // answer, so incoming bytes are dropped for a moment first. Any thread.
  void Close(int socket);
  // Whether a request waits, and every thread is busy. Any thread.
  bool crowded() const { return crowded_.load(std::memory_order_relaxed); }
  // Answers the requests that wait for a thread, closes all other connections and ends the threads.
  void Stop();

 private:
  struct Waiting {
    Arrival arrival;
    bool ends = false;  // from Close()
  };
  using List = std::list<Waiting>;

  void Watch();
  void Answer(bool urgent_only);
  // These run on the watching thread.
  void TakeNew();
  void Receive(int socket);
  void Drop(List* list, List::iterator at);
  void PassOn(Arrival arrival);
  void DropLate();
  void LookForRoom();  // REQUIRES: mutex_

  const Limits limits_;
  const Calls calls_;
  int epoll_ = -1, wake_ = -1;
  List silent_, ending_;  // of the watching thread, oldest first
  int64_t silent_bytes_ = 0;
  std::unordered_map<int, List::iterator> by_socket_;

  std::mutex mutex_;
  std::condition_variable ready_changed_, urgent_changed_;
  std::vector<Waiting> new_;            // under mutex_, as are the next four
  std::deque<Arrival> ready_, urgent_;  // for a thread
  int64_t n_idle_ = 0;
  bool stop_ = false;
  std::atomic<bool> crowded_{false};
  bool alone_ = false;  // the system allows too few threads: Add() answers
  std::vector<std::thread> threads_;
};

}  // namespace weir
