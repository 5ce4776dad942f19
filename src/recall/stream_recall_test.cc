// SPDX-License-Identifier: Apache-2.0
// An archive beside a session: what it costs was planned, and it goes on with its own session only.
#include "recall/stream_recall.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "recall/file_recall.h"
#include "recall/own_archive.h"
#include "support/build_paths.h"
#include "support/loaded.h"

namespace weir {
namespace {

class StreamRecallTest : public testing::TinyLlamaTest {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "stream_recall_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Stream {
    std::unique_ptr<Session> session;
    std::unique_ptr<StreamRecall> recall;
    const Tokenizer* tokenizer = nullptr;
    Status Read(const std::string& text) {
      EncodeOptions plain;
      plain.add_special = false;
      return session->Append(tokenizer->Encode(text, plain));
    }
  };
  RecallOptions Options(const std::string& name) const {
    RecallOptions out;
    out.spec = std::move(ParseRecallSpec("words:gate=0,passages=1")).value();
    if (!name.empty()) out.dir = folder_ + "/" + name;
    out.temp_dir = folder_;
    out.disk_bytes = 8 << 20;
    return out;
  }
  Stream Open(const RecallOptions& recall) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
    options.pot_slots = 64;
    const Status added = AddRecall(recall, *model_, &options);
    EXPECT_TRUE(added.ok()) << added.message();
    Stream out;
    out.tokenizer = &tokenizer();
    out.session = std::move(Session::Make(model_->model(), model_->backend(), options)).value();
    auto made = StreamRecall::Make(recall, *model_, *out.session);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) out.recall = *std::move(made);
    return out;
  }
  std::string Texts(StreamRecall& recall) {
    std::string out;
    recall.Flush();
    EXPECT_TRUE(recall.archive()
                    .Scan(recall.archive().begin(),
                          [&](BlockPlace, const Block& block) {
                            out += block.text;
                            return true;
                          })
                    .ok());
    return out;
  }
  static std::string Pages(int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += " the man and the sea.";
    return out;
  }

  std::string folder_;
};

TEST_F(StreamRecallTest, ThePlanIsWhatTheLedgerHolds) {
  for (const char* name : {"", "archive"}) {
    for (const int32_t tokens : {-1, 20, 100}) {
      RecallOptions options = Options(name);
      options.tokens = tokens;
      Stream stream = Open(options);
      const SessionPlan& plan = stream.session->plan();
      EXPECT_EQ(plan.excerpt_slots, tokens == -1 ? 16 : tokens);
      EXPECT_EQ(plan.pot_slots, 64);
      EXPECT_EQ(stream.session->ledger().used_bytes(), plan.total_bytes);
      ASSERT_TRUE(stream.Read(" The harpoon lay in the attic." + Pages(200)).ok());
      const auto recalled = stream.recall->recaller().Bring(*stream.session, "harpoon?", 0);
      ASSERT_TRUE(recalled.ok()) << recalled.status().message();
      if (tokens == 100) EXPECT_GT(recalled->n_tokens, 0);
      ASSERT_TRUE(stream.recall->recaller().TakeBack(*stream.session).ok());
      EXPECT_EQ(stream.session->ledger().peak_bytes(), plan.total_bytes);
      stream.recall.reset();
      std::filesystem::remove_all(folder_ + "/archive");
    }
  }
}

TEST_F(StreamRecallTest, ASearchIsInThePlan) {
  const RecallOptions recall = Options("");
  SessionOptions options;
  ASSERT_TRUE(AddRecall(recall, *model_, &options).ok());
  int64_t planned = 0;
  for (const PlanItem& item : options.beside) planned += item.what.find("search") != std::string::npos ? item.bytes : 0;
  EXPECT_GT(planned, 0);
  EXPECT_EQ(planned, Recaller::MemoryBytes(recall.spec));
}

TEST_F(StreamRecallTest, AFileThatIsItsOwnArchiveIsInThePlan) {
  const RecallSpec spec = Options("").spec;
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
  options.pot_slots = 64;
  EXPECT_EQ(FileRecall::Plan(spec, 0, &options).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(FileRecall::Plan(spec, 20, &options).ok());
  auto session = std::move(Session::Make(model_->model(), model_->backend(), options)).value();
  EXPECT_LT(session->ledger().used_bytes(), session->plan().total_bytes);
  auto made = FileRecall::Make(SourceDir() + "/LICENSE", spec, model_->tokenizer(), *session);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(session->ledger().used_bytes(), session->plan().total_bytes);
  EXPECT_EQ(session->plan().excerpt_slots, 20);
  FileRecall& recall = **made;
  recall.file().ReadTo(0, 0);
  recall.file().ReadTo(5000, 1000);
  ASSERT_TRUE(recall.recaller().Bring(*session, "derivative works", 0).ok());
  EXPECT_EQ(session->ledger().peak_bytes(), session->plan().total_bytes);
  ASSERT_TRUE(session->TakeBackExcerpt().ok());
}

TEST_F(StreamRecallTest, AnotherSessionsArchiveIsLeftAlone) {
  ArchivePoint point;
  std::string before;
  {
    Stream one = Open(Options("a"));
    ASSERT_TRUE(one.Read(Pages(30)).ok());
    point = one.recall->SavePoint();
    ASSERT_TRUE(one.Read(" and a lighthouse" + Pages(30)).ok());
    before = Texts(*one.recall);
  }
  ASSERT_GT(point.seq_end, 0);
  Stream two = Open(Options("a"));
  // A session that begins; one that was saved elsewhere, before its first word or in the middle of another stream.
  EXPECT_EQ(GoOnFrom(*two.recall, std::nullopt).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(GoOnFrom(*two.recall, ArchivePoint()).code(), StatusCode::kInvalidArgument);
  ArchivePoint other = point;
  --other.seq_end;
  EXPECT_EQ(GoOnFrom(*two.recall, other).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Texts(*two.recall), before);
  // Its own: what came after is gone.
  EXPECT_TRUE(GoOnFrom(*two.recall, point).ok());
  EXPECT_EQ(Texts(*two.recall).find("lighthouse"), std::string::npos);
  EXPECT_EQ(two.recall->archive().seq_end(), point.seq_end);
  EXPECT_EQ(two.recall->archive().notes().missing_tokens, 0);
}

TEST_F(StreamRecallTest, AnArchiveWithABlockAtTheSamePlaceIsAnother) {
  ArchivePoint points[2];
  for (const int i : {0, 1}) {
    Stream one = Open(Options(i == 0 ? "a" : "b"));
    ASSERT_TRUE(one.Read(Pages(30)).ok());
    points[i] = one.recall->SavePoint();
    ASSERT_TRUE(one.Read(Pages(30)).ok());
  }
  ASSERT_EQ(points[0].seq_end, points[1].seq_end);
  for (const int i : {0, 1}) {
    Stream two = Open(Options(i == 0 ? "a" : "b"));
    const std::string before = Texts(*two.recall);
    EXPECT_EQ(GoOnFrom(*two.recall, points[1 - i]).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Texts(*two.recall), before);
    EXPECT_TRUE(GoOnFrom(*two.recall, points[i]).ok());
  }
}

// Copies share files: they tell where they parted.
TEST_F(StreamRecallTest, ACopyHasThePointsFromBeforeItWasMade) {
  Stream one = Open(Options("a"));
  const ArchivePoint nothing = one.recall->SavePoint();
  ASSERT_TRUE(one.Read(Pages(30)).ok());
  const ArchivePoint before = one.recall->SavePoint();
  Ledger ledger;
  Archive& a = one.recall->archive();
  const auto b = std::move(a.Fork(folder_ + "/b", ledger)).value();
  EXPECT_TRUE(*b->Has(before));
  EXPECT_FALSE(*b->Has(nothing));
  ASSERT_TRUE(one.Read(Pages(30)).ok());
  const ArchivePoint after = one.recall->SavePoint();
  Block other = {.seq = b->seq_end(), .n_tokens = static_cast<int32_t>(after.seq_end - b->seq_end()), .text = " other"};
  ASSERT_TRUE(b->Append(other).ok());
  const ArchivePoint its = b->SavePoint();
  EXPECT_EQ(its.seq_end, after.seq_end);
  EXPECT_TRUE(*a.Has(before) && *a.Has(after) && *b->Has(before) && *b->Has(its));
  EXPECT_FALSE(*a.Has(its));
  // Cut, and written on with something else.
  ASSERT_TRUE(a.CutTo(before).ok());
  EXPECT_EQ(one.recall->SavePoint().sum, before.sum);
  const std::string as_long(static_cast<size_t>(after.offset - before.offset) - 40, 'x');
  other.text = as_long;
  ASSERT_TRUE(a.Append(other).ok());
  EXPECT_EQ(one.recall->SavePoint().offset, after.offset);
  EXPECT_FALSE(*a.Has(after));
  EXPECT_TRUE(*a.Has(before));
}

// What cannot be read today may be read tomorrow, and must not come back to another session then.
TEST_F(StreamRecallTest, AnArchiveThatCannotBeReadIsNotBegunAnew) {
  {
    Stream one = Open(Options("a"));
    ASSERT_TRUE(one.Read(Pages(30)).ok());
  }
  std::filesystem::rename(folder_ + "/a/00000001.seg", folder_ + "/away");
  std::filesystem::create_directory(folder_ + "/a/00000001.seg");
  Stream two = Open(Options("a"));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/a/00000001.seg"));
  EXPECT_EQ(two.recall->archive().seq_end(), 0);
  EXPECT_EQ(GoOnFrom(*two.recall, std::nullopt).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(GoOnFrom(*two.recall, ArchivePoint()).code(), StatusCode::kInvalidArgument);
}

TEST_F(StreamRecallTest, AnArchiveThatLostItsEndSaysSo) {
  Stream one = Open(Options("a"));
  ASSERT_TRUE(one.Read(Pages(30)).ok());
  ArchivePoint point = one.recall->SavePoint();
  point.seq_end += 100;
  EXPECT_TRUE(GoOnFrom(*one.recall, point).ok());
  EXPECT_EQ(one.recall->archive().notes().missing_tokens, 100);
  Stream fresh = Open(Options("b"));
  EXPECT_TRUE(GoOnFrom(*fresh.recall, std::nullopt).ok());
}

TEST_F(StreamRecallTest, WhatIsReadWhilePausedIsNotKept) {
  Stream stream = Open(Options("a"));
  ASSERT_TRUE(stream.Read(" the man").ok());
  stream.recall->Pause(true);
  ASSERT_TRUE(stream.Read(" a lighthouse").ok());
  stream.recall->Pause(false);
  ASSERT_TRUE(stream.Read(" and the sea").ok());
  const std::string kept = Texts(*stream.recall);
  EXPECT_EQ(kept.find("lighthouse"), std::string::npos) << kept;
  EXPECT_NE(kept.find("the man"), std::string::npos) << kept;
  EXPECT_NE(kept.find("the sea"), std::string::npos) << kept;
}

// A question may be read in several calls, each of which its caller stops; what comes after one that was given up is
// text to recall, not a question to leave out.
TEST_F(StreamRecallTest, AQuestionLastsUntilItIsReadOrGivenUp) {
  const auto role_of_last = [](StreamRecall& recall) {
    Role role = Role::kAnswer;
    recall.Flush();
    EXPECT_TRUE(recall.archive()
                    .Scan(0,
                          [&](BlockPlace, const Block& block) {
                            role = block.role;
                            return true;
                          })
                    .ok());
    return role;
  };
  const std::vector<int32_t> question(20, 300);
  for (const bool given_up : {true, false}) {
    Stream stream = Open(Options(""));
    ASSERT_TRUE(stream.session->BeginRound(question, 5).ok());
    ASSERT_TRUE(stream.session->Append(std::span(question).first(3)).ok());
    EXPECT_EQ(role_of_last(*stream.recall), Role::kQuestion);
    const std::atomic<bool> stop = true;
    Session::AppendOptions stopped;
    stopped.stop = &stop;
    EXPECT_EQ(stream.session->Append(std::span(question).first(1), stopped).code(), StatusCode::kCancelled);
    ASSERT_TRUE(stream.session->Append(std::span(question).first(2)).ok());
    EXPECT_EQ(role_of_last(*stream.recall), Role::kQuestion) << "after a stop";
    if (given_up) {
      stream.session->CancelQuestion();
    } else {
      Session::AppendOptions answer;
      answer.generated = true;
      ASSERT_TRUE(stream.session->Append(std::span(question).first(1), answer).ok());
    }
    ASSERT_TRUE(stream.Read(" the man").ok());
    EXPECT_EQ(role_of_last(*stream.recall), Role::kInput) << given_up;
  }
}

TEST_F(StreamRecallTest, WhatDoesNotFitIsSaidToBeTooLarge) {
  RecallOptions options = Options("");
  options.tokens = 2;
  Stream stream = Open(options);
  ASSERT_TRUE(stream.Read(" The harpoon lay in the attic." + Pages(200)).ok());
  const auto recalled = stream.recall->recaller().Bring(*stream.session, "harpoon?", 0);
  ASSERT_TRUE(recalled.ok());
  EXPECT_TRUE(recalled->passages.empty());
  EXPECT_TRUE(recalled->too_large);
  EXPECT_FALSE(recalled->gated);
}

TEST_F(StreamRecallTest, ExcerptsDoNotChooseTheRotaryFactors) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
  options.pot_slots = 64;
  const auto plain = PlanSession(model_->model(), model_->backend(), options);
  ASSERT_TRUE(AddRecall(Options(""), *model_, &options).ok());
  const auto with = PlanSession(model_->model(), model_->backend(), options);
  ASSERT_TRUE(plain.ok() && with.ok());
  EXPECT_GT(with->pot.n_slots, plain->pot.n_slots);
  EXPECT_EQ(with->runner.n_context, plain->runner.n_context);
}

TEST_F(StreamRecallTest, TooLittleIsRefused) {
  SessionOptions options;
  RecallOptions small = Options("a");
  small.disk_bytes = 1000;
  EXPECT_EQ(AddRecall(small, *model_, &options).code(), StatusCode::kInvalidArgument);
  small = Options("a");
  small.tokens = 0;
  EXPECT_EQ(AddRecall(small, *model_, &options).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/a"));
  std::filesystem::create_directories(folder_ + "/full");
  std::filesystem::copy_file(SourceDir() + "/LICENSE", folder_ + "/full/LICENSE");
  Stream other = Open(Options("a"));
  other.recall.reset();  // its room is planned once
  EXPECT_EQ(StreamRecall::Make(Options("full"), *model_, *other.session).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir
