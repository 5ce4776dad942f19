// SPDX-License-Identifier: Apache-2.0
#include "event_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/heap_bytes.h"
#include "common.h"
#include "media/child.h"
#include "media/memory_file.h"
#include "print.h"

namespace weir::app {

EventCommand::EventCommand(std::string command, int64_t limit_ms)
    : command_(std::move(command)), limit_ms_(limit_ms), thread_([this] { Work(); }) {}

EventCommand::~EventCommand() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

int64_t EventCommand::Event::bytes() const {
  int64_t out = 2 * static_cast<int64_t>(sizeof(Event)) + HeapBytes(std::ssize(input) + 1);
  out += HeapBytes(std::ssize(environment) * static_cast<int64_t>(sizeof(environment[0])));
  for (const auto& [variable, value] : environment) {
    out += HeapBytes(std::ssize(variable) + 1) + HeapBytes(std::ssize(value) + 1);
  }
  return out;
}

void EventCommand::Post(Event event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  event.input.shrink_to_fit();
  bytes_ += event.bytes();
  while (!waiting_.empty() && (waiting_.size() == kMostWaiting || bytes_ > kMostBytes)) {
    bytes_ -= waiting_.front().bytes();
    waiting_.pop_front();
    ++counters_.dropped;
  }
  waiting_.push_back(std::move(event));
  changed_.notify_all();
}

void EventCommand::End() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!StopFlag() && (running_ || !waiting_.empty())) changed_.wait_for(lock, std::chrono::milliseconds(100));
  counters_.dropped += std::ssize(waiting_);
  waiting_.clear();
  bytes_ = 0;
}

EventCommand::Counters EventCommand::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

void EventCommand::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    bytes_ -= waiting_.front().bytes();
    const Event event = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    lock.unlock();
    const Status status = Run(event);
    lock.lock();
    running_ = false;
    ++counters_.run;
    if (!status.ok() && !stop_) {
      ++counters_.failed;
      Print(stderr, "weir: warning: --then, {}: {}\n", event.name, Printable(status.message()));
    }
    changed_.notify_all();
  }
}

Status EventCommand::Run(const Event& event) {
  // In memory, so that a command that does not read it holds up nobody.
  WEIR_ASSIGN_OR_RETURN(const MemoryFile input, MemoryFile::Make(event.input));
  const int fd = open(input.path().c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return IoError("cannot read the event: {}", std::strerror(errno));
  std::vector<std::string> argv = {"/usr/bin/env"};
  for (const auto& [key, value] : event.environment) argv.push_back(key + "=" + value);
  argv.insert(argv.end(), {"/bin/sh", "-c", command_});
  ChildLimits limits;
  limits.wall_ms = limit_ms_;
  limits.ending_ms = 0;  // a command that sends its output elsewhere works on
  auto child = Child::Start(argv, fd, limits, ChildErrors::kAsOutput);
  close(fd);
  WEIR_RETURN_IF_ERROR(child.status());
  uint8_t buffer[4096];
  for (;;) {
    auto n = (*child)->Read(buffer, sizeof(buffer), &stop_);
    WEIR_RETURN_IF_ERROR(n.status());
    if (*n == 0) break;
    std::fwrite(buffer, 1, static_cast<size_t>(*n), stderr);
  }
  return (*child)->Finish(&stop_);
}

}  // namespace weir::app
