// SPDX-License-Identifier: Apache-2.0
#include "serve/scheduler.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <new>
#include <string>

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

}  // namespace
}  // namespace weir
