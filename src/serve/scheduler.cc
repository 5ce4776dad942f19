// SPDX-License-Identifier: Apache-2.0
#include "serve/scheduler.h"

#include <algorithm>

#include "base/clock.h"

namespace weir {

Scheduler::Scheduler(int max_waiting, JointStep joint)
    : max_waiting_(max_waiting), joint_(std::move(joint)), thread_([this] { Loop(); }) {}

Scheduler::~Scheduler() {
  Stop();
  thread_.join();
}

void Scheduler::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
}

void Scheduler::Wake() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    woken_ = true;
  }
  wake_.notify_one();
}

Status Scheduler::Post(std::shared_ptr<Job> job) { return Add(std::move(job), true); }

Status Scheduler::Add(std::shared_ptr<Job> job, bool bounded) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return Cancelled("the server is stopping");
    if (bounded && n_waiting_ >= max_waiting_) {
      return OverBudget("the server is busy: {} requests are already waiting; try again later", max_waiting_);
    }
    job->bounded_ = bounded;
    n_waiting_ += bounded;
    posted_.push_back(std::move(job));
  }
  wake_.notify_one();
  return Status();
}

void Scheduler::StartWaiting() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const std::shared_ptr<Job>& job = *it;
    if (job->cancelled()) {
      job->Dropped(Cancelled("the request was cancelled"));
    } else if (job->TryStart()) {
      running_.push_back({job, level_});
    } else {
      ++it;
      continue;
    }
    n_waiting_ -= job->bounded_;
    it = waiting_.erase(it);
  }
  n_running_ = static_cast<int>(running_.size());
}

bool Scheduler::StepNext() {
  auto next = running_.end();
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    if (!it->job->cancelled() && !it->job->Ready()) {
      it->seconds = std::max(it->seconds, level_);  // waiting time earns no credit
    } else if (next == running_.end() || it->seconds < next->seconds) {
      next = it;
    }
  }
  if (next == running_.end()) return false;
  level_ = next->seconds;
  std::vector<std::list<Running>::iterator> taking;
  if (joint_ && next->job->CanJoin()) {
    for (auto it = running_.begin(); it != running_.end(); ++it) {
      if (it->job->CanJoin()) taking.push_back(it);
    }
  } else {
    taking.push_back(next);
  }
  std::vector<Job::Step> steps(taking.size(), Job::Step::kDone);
  const auto start = Clock::now();
  if (joint_ && next->job->CanJoin()) {
    std::vector<Job*> jobs;
    for (const auto& it : taking) jobs.push_back(it->job.get());
    joint_(jobs, steps);
  } else {
    steps[0] = next->job->Advance();
  }
  const double seconds = SecondsSince(start);
  for (size_t i = 0; i < taking.size(); ++i) {
    taking[i]->seconds += seconds / static_cast<double>(taking.size());
    if (steps[i] == Job::Step::kMore) continue;
    taking[i]->job->Finish();
    running_.erase(taking[i]);
  }
  n_running_ = static_cast<int>(running_.size());
  return true;
}

void Scheduler::Loop() {
  bool idle = false;  // jobs are running, but none was ready
  for (;;) {
    bool came = false;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      // Jobs that wait while none runs may wait for a client to disconnect: check again from time to time.
      if (running_.empty()) {
        const auto ready = [this] { return stop_ || !posted_.empty(); };
        if (waiting_.empty()) {
          wake_.wait(lock, ready);
        } else {
          wake_.wait_for(lock, std::chrono::milliseconds(20), ready);
        }
      } else if (idle) {
        // With a timeout: a client's disconnect does not wake this thread.
        wake_.wait_for(lock, std::chrono::milliseconds(20), [this] { return stop_ || woken_ || !posted_.empty(); });
      }
      woken_ = idle = false;
      came = !posted_.empty();
      waiting_.splice(waiting_.end(), posted_);
      if (stop_) break;
    }
    const size_t n_before = running_.size();
    if (came || !waiting_.empty()) StartWaiting();
    if (running_.size() > n_before) continue;  // level with the others before the next step
    if (!running_.empty()) idle = !StepNext();
  }
  const Status stopping = Cancelled("the server is stopping");
  for (const auto& job : waiting_) job->Dropped(stopping);
  n_waiting_ = 0;
  waiting_.clear();
  for (Running& running : running_) {
    running.job->Cancel();
    while (running.job->Advance() == Job::Step::kMore) {
    }
    running.job->Finish();
  }
  running_.clear();
  n_running_ = 0;
}

}  // namespace weir
