// SPDX-License-Identifier: Apache-2.0
// One thread owns the model; everything that touches it is a job of small steps on that thread.
//
// A step is one chunk of a prompt or one token of an answer. Of the jobs that run, the one that has had the least of
// the engine's time goes next (a new one starts level with the least), so that short answers go on while a long text is
// read: each of n jobs gets a share of 1/n of the time, in steps of its own size. Jobs that need something another one
// holds (a session, a free pot) wait in the order in which they came.
//
// When the job whose turn it is can write its next token, all others that can do so too take that step with it, in one
// forward pass; each is charged its share of the time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"

namespace weir {

class Job {
 public:
  enum class Step { kMore, kDone };
  virtual ~Job() = default;
  // The engine's thread calls these. TryStart: take what the job needs; false when some of it is taken, and it is asked
  // again later. Advance: one step; must look at cancelled(). Finish: give back what TryStart() took, once, after the
  // last step.
  virtual bool TryStart() { return true; }
  virtual Step Advance() = 0;
  // Whether a step can be taken now. A job that waits for something outside the engine (a picture that is being
  // decoded) is passed over until it can; whoever ends the wait calls Scheduler::Wake().
  virtual bool Ready() { return true; }
  // Whether the next step may be taken by a Scheduler's JointStep, together with other jobs'.
  virtual bool CanJoin() const { return false; }
  virtual void Finish() {}
  // Instead of all of them, when the job never starts: it was cancelled before, or the engine stops. Any thread.
  virtual void Dropped(const Status& why) = 0;

  // Any thread: nobody waits for the result any more.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  friend class Scheduler;
  std::atomic<bool> cancelled_{false};
  bool bounded_ = false;  // one of those that may be too many
};

class Scheduler {
 public:
  // One step of several jobs, all of which CanJoin(); fills in what Advance() would return.
  using JointStep = std::function<void(std::span<Job* const> jobs, std::span<Job::Step> steps)>;

  // At most `max_waiting` jobs wait to start. Without a `joint` step every job goes alone.
  explicit Scheduler(int max_waiting, JointStep joint = nullptr);
  // Cancels every job and waits for the thread.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // kOverBudget when too many wait already, kCancelled when the engine stops.
  Status Post(std::shared_ptr<Job> job);
  // The same for a job that must not be refused (it frees something, or only looks); it takes no other one's place.
  Status PostAlways(std::shared_ptr<Job> job) { return Add(std::move(job), false); }
  // A job that was not ready may be. Any thread.
  void Wake();
  // Cancels every job; from now on nothing is accepted. Any thread.
  void Stop();

  // Of Post()'s, those that did not start yet.
  int n_waiting() const { return n_waiting_.load(std::memory_order_relaxed); }
  int n_running() const { return n_running_.load(std::memory_order_relaxed); }

 private:
  struct Running {
    std::shared_ptr<Job> job;
    double seconds;  // of the engine's time, counted from a common origin
  };
  Status Add(std::shared_ptr<Job> job, bool bounded);
  void Loop();
  void StartWaiting();
  // False when no job is ready.
  bool StepNext();

  const int max_waiting_;
  const JointStep joint_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<std::shared_ptr<Job>> posted_;   // under mutex_
  bool stop_ = false, woken_ = false;        // under mutex_
  std::list<std::shared_ptr<Job>> waiting_;  // the engine's thread's own, as are the next two
  std::list<Running> running_;
  double level_ = 0;  // what a new job's time starts from
  std::atomic<int> n_waiting_{0}, n_running_{0};
  std::thread thread_;  // last: starts when everything else is there
};

}  // namespace weir
