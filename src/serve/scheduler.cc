// SPDX-License-Identifier: Apache-2.0
#include "serve/scheduler.h"

#include <algorithm>

#include "base/caught.h"
#include "base/clock.h"

namespace weir {
namespace {

// After its last step, which ended as `advanced` says.
void EndJob(Job& job, Status advanced) {
  if (advanced.ok()) {
    advanced = Caught([&] {
      job.Finish();
      return Status();
    });
  }
  if (!advanced.ok()) TryUntilDone([&] { job.Abandon(advanced); });
}

}  // namespace

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
    posted_.push_back(std::move(job));
    n_waiting_ += bounded;
  }
  wake_.notify_one();
  return Status();
}

void Scheduler::StartWaiting() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const std::shared_ptr<Job>& job = *it;
    if (job->cancelled()) {
      TryUntilDone([&] { job->Dropped(Cancelled("the request was cancelled")); });
    } else {
      std::list<Running> one;
      one.push_back({job, level_});  // before anything is begun: there may be no memory for it
      bool starts = false;
      const Status tried = Caught([&] {
        starts = job->TryStart();
        return Status();
      });
      if (!tried.ok()) {
        TryUntilDone([&] { job->Abandon(tried); });
      } else if (starts) {
        running_.splice(running_.end(), one);
      } else {
        ++it;
        continue;
      }
    }
    n_waiting_ -= job->bounded_;
    it = waiting_.erase(it);
  }
  n_running_ = static_cast<int>(running_.size());
}

Scheduler::Place Scheduler::Next(bool urgent) {
  auto next = running_.end();
  for (auto it = running_.begin(); it != running_.end(); ++it) {
    if (it->job.get() == alone_ || (urgent && (it->job->cancelled() || !it->job->Urgent()))) continue;
    if (!it->job->cancelled() && !it->job->Ready()) {
      it->seconds = std::max(it->seconds, level_);  // waiting time earns no credit
    } else if (next == running_.end() || it->seconds < next->seconds) {
      next = it;
    }
  }
  return next;
}

bool Scheduler::StepNext() {
  alone_ = nullptr;  // a step that ran out of memory may have left it
  const Place next = Next(/*urgent=*/false);
  if (next == running_.end()) return false;
  level_ = next->seconds;
  std::vector<Place> taking;
  if (joint_ && next->job->CanJoin()) {
    for (auto it = running_.begin(); it != running_.end(); ++it) {
      if (it->job->CanJoin()) taking.push_back(it);
    }
  } else {
    taking.push_back(next);
    alone_ = next->job.get();
    alone_since_ = Clock::now();
    interjected_before_ = interjected_;
  }
  Make(taking);
  alone_ = nullptr;
  n_running_ = static_cast<int>(running_.size());
  return true;
}

void Scheduler::Make(std::span<const Place> taking) {
  std::vector<Job::Step> steps(taking.size(), Job::Step::kDone);
  std::vector<Job*> jobs;
  for (const Place& it : taking) jobs.push_back(it->job.get());
  const bool joint = joint_ && !interjecting_ && jobs.front()->CanJoin();
  const auto start = Clock::now();
  const double before = interjected_;
  const Status advanced = Caught([&] {
    if (joint) {
      joint_(jobs, steps);
    } else {
      steps[0] = jobs.front()->Advance();
    }
    return Status();
  });
  const double seconds = SecondsSince(start) - (interjected_ - before);
  for (size_t i = 0; i < taking.size(); ++i) {
    taking[i]->seconds += seconds / static_cast<double>(taking.size());
    if (advanced.ok() && steps[i] == Job::Step::kMore) continue;
    EndJob(*taking[i]->job, advanced);
    running_.erase(taking[i]);
  }
}

void Scheduler::Interject() {
  if (alone_ == nullptr || interjecting_) return;
  bool came = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stop_) return;
    came = !posted_.empty();
    waiting_.splice(waiting_.end(), posted_);
  }
  const auto start = Clock::now();
  const double before = interjected_;
  interjecting_ = true;
  // The job in whose step this is must not fail for it.
  (void)Caught([&] {
    if (came) StartWaiting();
    for (Place next = Next(/*urgent=*/true); next != running_.end(); next = Next(/*urgent=*/true)) {
      const double others = interjected_ - interjected_before_;
      if (others > Seconds(Clock::now() - alone_since_) - others + 0.1) break;
      Make({&next, 1});
      interjected_ = before + SecondsSince(start);
    }
    return Status();
  });
  interjected_ = before + SecondsSince(start);
  interjecting_ = false;
}

bool Scheduler::Go() {
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
    } else if (idle_) {
      // With a timeout: a client's disconnect does not wake this thread.
      wake_.wait_for(lock, std::chrono::milliseconds(20), [this] { return stop_ || woken_ || !posted_.empty(); });
    }
    woken_ = idle_ = false;
    came = !posted_.empty();
    waiting_.splice(waiting_.end(), posted_);
    if (stop_) return false;
  }
  const size_t n_before = running_.size();
  if (came || !waiting_.empty()) StartWaiting();
  if (running_.size() > n_before) return true;  // level with the others before the next step
  if (!running_.empty()) idle_ = !StepNext();
  return true;
}

void Scheduler::Loop() {
  for (bool goes_on = true; goes_on;) TryUntilDone([&] { goes_on = Go(); });
  const Status stopping = Cancelled("the server is stopping");
  for (const auto& job : waiting_) TryUntilDone([&] { job->Dropped(stopping); });
  n_waiting_ = 0;
  waiting_.clear();
  for (Running& running : running_) {
    running.job->Cancel();
    EndJob(*running.job, Caught([&] {
      while (running.job->Advance() == Job::Step::kMore) {
      }
      return Status();
    }));
  }
  running_.clear();
  n_running_ = 0;
}

}  // namespace weir
