// SPDX-License-Identifier: Apache-2.0
#include "serve/request_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace weir {
namespace {

// A telemetry that logs, and posts spans to nobody.
class RequestTraceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Telemetry> Make(bool logs, bool exports) {
    TelemetryOptions options;
    if (exports) options.otlp.endpoint = "http://127.0.0.1:1";
    if (logs) {
      options.log = [this](const RequestRecord& record) {
        const std::lock_guard<std::mutex> lock(mutex_);
        told_.push_back(record);
      };
    }
    auto made = Telemetry::Make(options, ledger_);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return *std::move(made);
  }

  Ledger ledger_;
  std::mutex mutex_;
  std::vector<RequestRecord> told_;
};

TEST_F(RequestTraceTest, IsNothingWhereNobodyWantsToKnow) {
  const auto telemetry = Make(false, false);
  RequestScope scope(*telemetry, "a", std::nullopt);
  scope.SetName("GET /a", true);
  scope.SetStatus(200);
  scope.SetSession("s-0123456789abcdef");
  SpanTimer("b").Add();
  EXPECT_EQ(scope.trace(), nullptr);
  EXPECT_EQ(RequestTrace::Current(), nullptr);
}

TEST_F(RequestTraceTest, ScopesNestAndAreToldOnceTheLastOneLetsGo) {
  const auto telemetry = Make(true, false);
  std::shared_ptr<RequestTrace> held;
  {
    RequestScope outer(*telemetry, "outer",
                       ParseTraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    {
      const RequestScope inner(*telemetry, "inner", std::nullopt);
      EXPECT_EQ(RequestTrace::Current().get(), inner.trace());
      EXPECT_EQ(inner.trace()->context().trace_id, outer.trace()->context().trace_id);
      EXPECT_NE(inner.trace()->context().span_id, outer.trace()->context().span_id);
      RequestScope nothing(*telemetry, "nothing", std::nullopt);
      nothing.Forget();
    }
    EXPECT_EQ(RequestTrace::Current().get(), outer.trace());
    outer.SetName("POST /a", true);
    outer.SetStatus(503);
    outer.SetSession("s-one-0123456789abcdef0123456789abcdef");
    held = RequestTrace::Current();
  }
  EXPECT_EQ(RequestTrace::Current(), nullptr);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].name, "inner");
  std::thread([&] {
    held->CountTokens(5, 2);
    held.reset();
  }).join();
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1].name, "POST /a");
  EXPECT_EQ(told_[1].status, 503);
  EXPECT_EQ(told_[1].session, "s-one-012345");
  EXPECT_EQ(told_[1].n_prompt, 5);
  EXPECT_EQ(told_[1].trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_TRUE(told_[1].sampled) << "who asked decides, also where spans go nowhere";
}

TEST_F(RequestTraceTest, HasAtMostSoManySpans) {
  const auto telemetry = Make(false, true);
  {
    const RequestScope scope(*telemetry, "a", std::nullopt);
    ASSERT_TRUE(scope.trace()->sampled());
    EXPECT_TRUE(scope.trace()->AsExemplar());
    std::vector<std::thread> working;
    for (int i = 0; i < 4; ++i) {
      working.emplace_back([trace = RequestTrace::Current()] {
        for (size_t j = 0; j < RequestTrace::kMostSpans; ++j) {
          trace->Add("b", Clock::now(), Clock::now(), {{"n", int64_t{1}}});
          trace->Say("c", int64_t{1});
        }
      });
    }
    for (std::thread& thread : working) thread.join();
  }
  EXPECT_EQ(telemetry->exporter()->counters().waiting + telemetry->exporter()->counters().dropped,
            static_cast<int64_t>(RequestTrace::kMostSpans) + 1);
}

TEST(SessionLabel, TellsTooLittleToUseASession) {
  EXPECT_EQ(SessionLabel("s-0123456789abcdef0123456789abcdef"), "s-012345");
  EXPECT_EQ(SessionLabel("s-one-0123456789abcdef0123456789abcdef"), "s-one-012345");
  EXPECT_EQ(SessionLabel("s-chosen-by-a-client-0123"), "s-chosen");
  for (const char* none : {"", "x", "key", "S-0123", "s-../a"}) EXPECT_EQ(SessionLabel(none), "") << none;
}

}  // namespace
}  // namespace weir
