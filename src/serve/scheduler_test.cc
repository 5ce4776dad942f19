// SPDX-License-Identifier: Apache-2.0
#include "serve/scheduler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "serve/channel.h"

namespace weir {
namespace {

// A job that runs out of memory in one of its parts, or in none.
class Failing : public Job {
 public:
  explicit Failing(std::string where) : where_(std::move(where)) {}
  bool TryStart() override { return Go("start"); }
  Step Advance() override {
    Go("step");
    return Step::kDone;
  }
  void Finish() override {
    Go("finish");
    said.Push(Status());
  }
  void Dropped(const Status& why) override { said.Push(why); }
  void Abandon(const Status& why) override {
    if (++n_abandoned_ == 1) throw std::bad_alloc();  // and again when it says so
    Dropped(why);
  }

  Channel<Status> said;

 private:
  bool Go(const std::string& part) {
    if (where_ == part) throw std::bad_alloc();
    return true;
  }
  const std::string where_;
  int n_abandoned_ = 0;
};

TEST(SchedulerTest, AJobThatRunsOutOfMemorySaysSoAndTheNextOneRuns) {
  Scheduler scheduler(8);
  for (const std::string where : {"start", "step", "finish", "nowhere"}) {
    SCOPED_TRACE(where);
    const auto job = std::make_shared<Failing>(where);
    ASSERT_TRUE(scheduler.Post(job).ok());
    const auto said = job->said.Pop(std::chrono::seconds(20));
    ASSERT_TRUE(said.has_value());
    EXPECT_EQ(said->ok(), where == "nowhere");
    EXPECT_EQ(scheduler.n_waiting(), 0);
  }
}

// Steps of `n`, of which each but the last wants more; notes its name at every step.
class Noting : public Job {
 public:
  Noting(std::string name, int n, bool urgent, std::string* log)
      : name_(std::move(name)), n_(n), urgent_(urgent), log_(log) {}
  bool Urgent() const override { return urgent_; }
  Step Advance() override {
    *log_ += name_;
    return --n_ == 0 ? Step::kDone : Step::kMore;
  }
  void Finish() override { said.Push(Status()); }
  void Dropped(const Status& why) override { said.Push(why); }
  Channel<Status> said;

 private:
  const std::string name_;
  int n_;
  const bool urgent_;
  std::string* log_;
};

// One long step, in the middle of which other work comes.
class Long : public Noting {
 public:
  Long(Scheduler& scheduler, std::string* log, std::function<void()> middle)
      : Noting("(", 1, true, log), scheduler_(scheduler), log_(log), middle_(std::move(middle)) {}
  Step Advance() override {
    const Step step = Noting::Advance();
    middle_();
    scheduler_.Interject();
    *log_ += ")";
    return step;
  }

 private:
  Scheduler& scheduler_;
  std::string* log_;
  std::function<void()> middle_;
};

TEST(SchedulerTest, WhatIsUrgentStepsInTheMiddleOfALongStep) {
  std::string log;  // of the engine's thread, until all jobs are done
  Scheduler scheduler(8);
  const auto urgent = std::make_shared<Noting>("u", 3, true, &log),
             other = std::make_shared<Noting>("o", 2, false, &log);
  const auto inner = std::make_shared<Long>(scheduler, &log, [] {});
  const auto outer = std::make_shared<Long>(scheduler, &log, [&] {
    for (const std::shared_ptr<Job>& job :
         {std::shared_ptr<Job>(other), std::shared_ptr<Job>(urgent), std::shared_ptr<Job>(inner)}) {
      EXPECT_TRUE(scheduler.Post(job).ok());
    }
  });
  scheduler.Interject();  // of another thread, and between steps: nothing
  ASSERT_TRUE(scheduler.Post(outer).ok());
  for (Noting* job : std::initializer_list<Noting*>{outer.get(), urgent.get(), inner.get(), other.get()}) {
    ASSERT_TRUE(job->said.Pop(std::chrono::seconds(20)).has_value());
  }
  // All of what is urgent, none of the other, and no interruption within an interruption.
  EXPECT_EQ(log.size(), std::string("(uuu())oo").size());
  EXPECT_EQ(log.substr(log.size() - 3), ")oo") << log;
  EXPECT_EQ(log.front(), '(');
}

// Each of these is urgent and takes ten times what the long step takes by itself.
TEST(SchedulerTest, UrgentStepsTakeNoMoreThanTheStepTheyInterrupt) {
  std::string log;
  Scheduler scheduler(1000);
  class Slow : public Noting {
   public:
    using Noting::Noting;
    Step Advance() override {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      return Noting::Advance();
    }
  };
  const auto slow = std::make_shared<Slow>("u", 20, true, &log);
  const auto outer = std::make_shared<Long>(scheduler, &log, [&] { EXPECT_TRUE(scheduler.Post(slow).ok()); });
  ASSERT_TRUE(scheduler.Post(outer).ok());
  ASSERT_TRUE(outer->said.Pop(std::chrono::seconds(20)).has_value());
  ASSERT_TRUE(slow->said.Pop(std::chrono::seconds(20)).has_value());
  const size_t end = log.find(')');
  EXPECT_GE(end, 2U) << log;  // it did come in between
  EXPECT_LE(end, 4U) << log;  // for the tenth of a second that is always allowed, and one step more
}

}  // namespace
}  // namespace weir
