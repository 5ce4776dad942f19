// SPDX-License-Identifier: Apache-2.0
// The scheduler: one thread owns the model; all work on it runs as jobs of small steps on that thread.
//
// A step is one chunk of a prompt or one token of an answer. Scheduling is fair: the running job that has used the
// least engine time steps next (a new job starts level with the least), so that short answers make progress while a
// long text is read. Each of n jobs gets 1/n of the time, in steps of its own size. Jobs that need a resource held by
// another job (a session, a free pot) wait in order of arrival.
//
// If the job whose turn it is can generate its next token, all other jobs that can do so join that step, in one forward
// pass; each is charged its share of the time.
//
// A chunk takes long beside a short question's first token. Between the layers of a chunk (Interject()) urgent jobs
// step, for at most as long as the chunk itself takes; they are charged for it as for any other step.
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

#include "base/clock.h"
#include "base/status.h"

namespace weir {

class Job {
 public:
  enum class Step { kMore, kDone };
  virtual ~Job() = default;
  // Called on the engine's thread. TryStart: acquires the job's resources; returns false if one is in use, and is
  // called again later. Advance: runs one step; must check cancelled(). Finish: releases the resources of TryStart();
  // called once, after the last step.
  virtual bool TryStart() { return true; }
  virtual Step Advance() = 0;
  // Whether the job can step now. A job that waits for something outside the engine (a picture that is being decoded)
  // is skipped until it can; the code that ends the wait must call Scheduler::Wake().
  virtual bool Ready() { return true; }
  // Whether the next step may be part of a JointStep with other jobs.
  virtual bool CanJoin() const { return false; }
  // Whether the next step is short and somebody waits for what comes of it: it may run in the middle of another's.
  virtual bool Urgent() const { return false; }
  virtual void Finish() {}
  // Called instead of all of these if the job never starts, because it was cancelled before or the engine stops. Any
  // thread.
  virtual void Dropped(const Status& why) = 0;
  // Called on the engine's thread in place of the rest when one of these threw, because memory ran out in the middle of
  // it: releases what the job holds, and says so. It is called again if it throws, too. All jobs of a joint step that
  // threw are abandoned.
  virtual void Abandon(const Status& why) { Dropped(why); }

  // Any thread: the result is no longer needed.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  friend class Scheduler;
  std::atomic<bool> cancelled_{false};
  bool bounded_ = false;  // counts towards max_waiting
};

class Scheduler {
 public:
  // One step of several jobs whose CanJoin() is true; fills in what Advance() would return.
  using JointStep = std::function<void(std::span<Job* const> jobs, std::span<Job::Step> steps)>;

  // At most `max_waiting` jobs wait to start. Without a `joint` step every job steps alone.
  explicit Scheduler(int max_waiting, JointStep joint = nullptr);
  // Cancels every job and waits for the thread.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // kOverBudget if too many jobs wait already, kCancelled if the engine stops.
  Status Post(std::shared_ptr<Job> job);
  // The same for a job that must not be refused (it frees something, or only reads); it does not count towards
  // max_waiting.
  Status PostAlways(std::shared_ptr<Job> job) { return Add(std::move(job), false); }
  // Call when a job that was not ready may be ready. Any thread.
  void Wake();
  // Called in the middle of Advance(), on the engine's thread: steps what is urgent. Does nothing elsewhere.
  void Interject();
  // Cancels every job and accepts no more. Any thread.
  void Stop();

  // Jobs from Post() that have not started yet.
  int n_waiting() const { return n_waiting_.load(std::memory_order_relaxed); }
  int n_running() const { return n_running_.load(std::memory_order_relaxed); }

 private:
  struct Running {
    std::shared_ptr<Job> job;
    double seconds;  // of the engine's time, counted from a common origin
  };
  Status Add(std::shared_ptr<Job> job, bool bounded);
  void Loop();
  // Takes what was posted, and makes a step if there is one. False once the scheduler stops.
  bool Go();
  void StartWaiting();
  // False when no job is ready.
  bool StepNext();
  using Place = std::list<Running>::iterator;
  // The ready job with the least time, of all or of those that are urgent; end() if there is none.
  Place Next(bool urgent);
  // Makes a step of these jobs, charges them, and ends those that are done.
  void Make(std::span<const Place> taking);

  const int max_waiting_;
  const JointStep joint_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<std::shared_ptr<Job>> posted_;   // under mutex_
  bool stop_ = false, woken_ = false;        // under mutex_
  std::list<std::shared_ptr<Job>> waiting_;  // used by the engine's thread only, as are the next two
  std::list<Running> running_;
  double level_ = 0;            // the engine time that a new job starts with
  bool idle_ = false;           // jobs are running, but none was ready
  const Job* alone_ = nullptr;  // the job that makes a step of its own
  Clock::time_point alone_since_;
  bool interjecting_ = false;
  double interjected_ = 0;  // seconds in the middle of others' steps, ever; up to the present step of alone_:
  double interjected_before_ = 0;
  std::atomic<int> n_waiting_{0}, n_running_{0};
  std::thread thread_;  // last: starts when everything else is initialised
};

}  // namespace weir
