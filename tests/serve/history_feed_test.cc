// SPDX-License-Identifier: Apache-2.0
// What a session reads before a question is read in pieces, as long as the caller waits for each.
#include "serve/history_feed.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "serve/call_job.h"
#include "serve/thread_book.h"
#include "support/golden.h"

namespace weir {
namespace {

class HistoryFeedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    LoadModelOptions load;
    load.path = testing::GoldenDir() + "llama.gguf";
    auto model = LoadedModel::Load(load);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
    HostOptions options;
    options.session.policy = *ParsePolicySpec("window");
    options.session.pot_slots = 96;
    options.answer_pots = 1;
    auto host = Host::Make(*model_, std::move(options));
    ASSERT_TRUE(host.ok()) << host.status().message();
    host_ = *std::move(host);
    const Status made = CallEngine(*host_, [&]() -> Status {
      WEIR_ASSIGN_OR_RETURN(const SessionOptions session, host_->admission().OptionsFor("", 0, {}));
      WEIR_ASSIGN_OR_RETURN(const StreamSession* const stream, host_->Create(session));
      id_ = stream->id;
      return Status();
    });
    ASSERT_TRUE(made.ok()) << made.message();
  }
  std::unique_ptr<HistoryFeed> Feed(bool wanted = true) {
    return std::make_unique<HistoryFeed>(
        *host_, id_, [](const Status& status) { return status; }, [wanted] { return wanted; });
  }
  int64_t Seen() {
    int64_t seen = -1;
    EXPECT_TRUE(CallWithSession(*host_, id_, [&](StreamSession& stream) {
                  seen = stream.session->n_seen();
                  return Status();
                }).ok());
    return seen;
  }

  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<Host> host_;
  std::string id_;
};

TEST_F(HistoryFeedTest, ReturnsBetweenShortStepsOnceItsMomentHasCome) {
  auto feed = Feed();
  for (uint64_t round = 0; round < 5; ++round) {
    feed->Append("the man and the sea ");
    feed->Note(id_, {round});
  }
  int n_calls = 1;
  auto done = feed->Go(Clock::now());
  for (; !done; done = feed->Go(Clock::now())) ++n_calls;
  EXPECT_EQ(done->http, 0) << done->message;
  EXPECT_GE(n_calls, 5);
  EXPECT_TRUE(feed->has_read());
  EXPECT_GT(Seen(), 0);
  EXPECT_EQ(host_->threads().NumRead(id_, std::vector<uint64_t>{0, 1, 2, 3, 4}), 5u);
}

TEST_F(HistoryFeedTest, NothingToReadIsDoneAtOnce) {
  auto feed = Feed();
  feed->Append("");
  feed->Note(id_, {7});
  const auto done = feed->Go(Clock::now());
  ASSERT_TRUE(done);
  EXPECT_EQ(done->http, 0);
  EXPECT_FALSE(feed->has_read());
  EXPECT_EQ(host_->threads().NumRead(id_, std::vector<uint64_t>{7}), 0u);
}

TEST_F(HistoryFeedTest, AClientThatHasGoneGetsNothingRead) {
  auto feed = Feed(false);
  feed->Append("the man and the sea");
  const auto done = feed->Go(Clock::time_point::max());
  ASSERT_TRUE(done);
  EXPECT_NE(done->http, 0);
  EXPECT_EQ(Seen(), 0);
}

TEST_F(HistoryFeedTest, ASessionThatEndsInBetweenIsSaid) {
  auto feed = Feed();
  feed->Append("the man");
  feed->Tell("and the sea?", "yes");
  auto done = feed->Go(Clock::now());
  while (!done && !feed->has_read()) done = feed->Go(Clock::now());
  ASSERT_FALSE(done);
  ASSERT_TRUE(DeleteSession(*host_, id_).ok());
  while (!done) done = feed->Go(Clock::time_point::max());
  EXPECT_EQ(done->http, 409) << done->message;
}

}  // namespace
}  // namespace weir
