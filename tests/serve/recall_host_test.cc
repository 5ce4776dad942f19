// SPDX-License-Identifier: Apache-2.0
// Recall's memory in a host: what a session with an archive has reserved is what its plan says, to the byte.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "cli/process.h"
#include "serve/call_job.h"
#include "serve/host.h"
#include "support/golden.h"

namespace weir {
namespace {

constexpr int64_t kDisk = 4 << 20;

class RecallHostTest : public ::testing::TestWithParam<bool> {
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
    options.recall.spec = *ParseRecallSpec("words");
    options.recall.disk_bytes = kDisk;
    if (GetParam()) options.recall.dir = temp_.File("archives");
    options.recall_disk_total = 3 * kDisk;
    auto host = Host::Make(*model_, std::move(options));
    ASSERT_TRUE(host.ok()) << host.status().message();
    host_ = *std::move(host);
  }
  Result<StreamSession*> Create(int64_t disk_bytes, int64_t tokens) {
    WEIR_ASSIGN_OR_RETURN(const RecallOptions recall, host_->recall().OptionsFor(std::nullopt, disk_bytes, tokens));
    WEIR_ASSIGN_OR_RETURN(const SessionOptions options, host_->admission().OptionsFor("", 0, recall));
    WEIR_ASSIGN_OR_RETURN(StreamSession* const out, host_->Create(options));
    WEIR_RETURN_IF_ERROR(host_->recall().Begin(recall, out));
    return out;
  }

  const testing::TempDir temp_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<Host> host_;
};

TEST_P(RecallHostTest, TheLedgerIsThePlan) {
  const Status status = CallEngine(*host_, [&]() -> Status {
    int64_t used = host_->ledger().used_bytes();
    EXPECT_GT(host_->session_bytes(), host_->plan().total_bytes);
    WEIR_ASSIGN_OR_RETURN(StreamSession* const first, Create(0, 0));
    EXPECT_EQ(first->session->plan().total_bytes, host_->session_bytes());
    EXPECT_EQ(first->session->ledger().used_bytes(), first->session->plan().total_bytes);
    EXPECT_EQ(host_->ledger().used_bytes(), used + first->session->plan().total_bytes);
    EXPECT_EQ(host_->recall().disk_reserved(), kDisk);

    const std::vector<int32_t> tokens(500, 5);
    WEIR_RETURN_IF_ERROR(first->session->Append(tokens));
    EXPECT_EQ(first->session->ledger().used_bytes(), first->session->plan().total_bytes);
    WEIR_ASSIGN_OR_RETURN(StreamSession* const fork, host_->Create(first->options, 0));
    WEIR_RETURN_IF_ERROR(fork->session->CopyFrom(*first->session));
    WEIR_RETURN_IF_ERROR(host_->recall().Fork(*first, fork));
    EXPECT_EQ(fork->session->ledger().used_bytes(), fork->session->plan().total_bytes);
    EXPECT_EQ(fork->recall->stream->archive().seq_end(), 500);
    EXPECT_EQ(host_->recall().disk_reserved(), 2 * kDisk);

    WEIR_ASSIGN_OR_RETURN(StreamSession* const other, Create(1 << 20, 50));
    EXPECT_EQ(other->session->plan().excerpt_slots, 50);
    EXPECT_EQ(other->session->ledger().used_bytes(), other->session->plan().total_bytes);
    // A quota that is not there any more, and nothing of it is left behind.
    EXPECT_EQ(Create(kDisk, 0).status().code(), StatusCode::kOverBudget);
    const std::vector<std::string> ids = {first->id, fork->id, other->id};
    for (const std::string& id : ids) host_->sessions().Erase(id);
    while (!host_->sessions().all().empty()) host_->sessions().Erase(host_->sessions().all().begin()->first);
    EXPECT_EQ(host_->ledger().used_bytes(), used);
    EXPECT_EQ(host_->recall().disk_reserved(), 0);
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  if (GetParam()) EXPECT_TRUE(std::filesystem::is_empty(temp_.File("archives")));
}

TEST_P(RecallHostTest, ACopyForASnapshotNeedsNothingBeside) {
  const Status status = CallEngine(*host_, [&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, Create(0, 0));
    WEIR_RETURN_IF_ERROR(stream->session->Append(std::vector<int32_t>(500, 5)));
    const int64_t used = host_->ledger().used_bytes();
    for (int i = 0; i < 3; ++i) {
      WEIR_ASSIGN_OR_RETURN(const auto saved, host_->recall().Save(*stream, "notes"));
      EXPECT_EQ(saved.note->archive.empty(), !GetParam());
      host_->recall().EndSave(saved, true);
      EXPECT_EQ(host_->ledger().used_bytes(), used);
    }
    EXPECT_EQ(stream->session->ledger().used_bytes(), stream->session->plan().total_bytes);
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  if (GetParam()) EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temp_.File("archives")), {}), 2);
}

INSTANTIATE_TEST_SUITE_P(Archives, RecallHostTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InAFolder" : "WithoutNames"; });

}  // namespace
}  // namespace weir
