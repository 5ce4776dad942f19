// SPDX-License-Identifier: Apache-2.0
// Keys and values beside an archive: what is stored is what the pot had, what comes back is what was stored, and a
// session that gives it back is as before.
#include "recall/block_vectors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "quant/format.h"
#include "quant/half.h"
#include "recall/stream_recall.h"
#include "support/loaded.h"

namespace weir {
namespace {

class BlockVectorsTest : public testing::TinyLlamaTest {
 protected:
  struct Stream {
    std::unique_ptr<Session> session;
    std::unique_ptr<StreamRecall> recall;
  };
  Result<Stream> Open(const std::string& spec, const std::string& policy = "streaming_llm",
                      const std::string& dir = "") const {
    RecallOptions recall;
    WEIR_ASSIGN_OR_RETURN(recall.spec, ParseRecallSpec(spec));
    recall.dir = dir;
    recall.temp_dir = ::testing::TempDir();
    recall.disk_bytes = 64 << 20;
    recall.tokens = 160;
    SessionOptions options;
    WEIR_ASSIGN_OR_RETURN(options.policy, ParsePolicySpec(policy));
    options.pot_slots = 256;
    WEIR_RETURN_IF_ERROR(AddRecall(recall, *model_, &options));
    Stream out;
    WEIR_ASSIGN_OR_RETURN(out.session, Session::Make(model_->model(), model_->backend(), options));
    WEIR_ASSIGN_OR_RETURN(out.recall, StreamRecall::Make(recall, *model_, *out.session));
    return out;
  }
  Status Read(Stream& stream, const std::string& text) const {
    EncodeOptions plain;
    plain.add_special = false;
    return stream.session->Append(tokenizer().Encode(text, plain));
  }
  static std::string Sea(int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += " the man and the sea.";
    return out;
  }
  VectorShape Shape() const { return VectorShape::Of(model_->model().config().attention.pot()); }
  static std::tuple<int32_t, int32_t, int32_t> Place(const VectorShape& shape, int64_t head) {
    const VectorShape::Head& of = shape.heads[static_cast<size_t>(head)];
    return {of.layer, of.head, of.dim};
  }
  static std::vector<uint8_t> Saved(Session& session) {
    std::vector<uint8_t> out;
    EXPECT_TRUE(session.Save(&out).ok());
    return out;
  }
};

// Layers that are all alike; of their own head sizes, some of which read another's keys; of their own KV heads; of
// latents.
class BlockVectorsOfModels : public BlockVectorsTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { testing::LoadTiny(GetParam(), &model_); }
};
INSTANTIATE_TEST_SUITE_P(Tiny, BlockVectorsOfModels, ::testing::Values("llama", "gemma4", "gemma4_k_eq_v", "deepseek2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(BlockVectorsOfModels, WhatIsStoredIsWhatThePotHas) {
  Stream stream = std::move(Open("keys:restore=kv")).value();
  ASSERT_TRUE(Read(stream, " The harpoon lay in the attic." + Sea(6)).ok());
  stream.recall->Flush();
  Archive& archive = stream.recall->archive();
  ASSERT_NE(archive.keys(), nullptr);
  ASSERT_NE(archive.kv(), nullptr);
  const Pot& pot = stream.session->pot();
  const VectorShape shape = Shape();
  std::vector<uint8_t> slots(static_cast<size_t>(kKvTokens * RowBytes(DType::kF16, shape.most_dim)));
  std::vector<float> scratch(static_cast<size_t>(shape.most_dim));
  int64_t n_tokens = 0;
  ASSERT_TRUE(archive.kv()
                  ->Scan(archive.kv()->begin(),
                         [&](BlockPlace, const Block& block) {
                           EXPECT_TRUE(IsKvRecord(block, shape));
                           for (int64_t head = 0; head < shape.n_heads(); ++head) {
                             const auto [layer, kv, dim] = Place(shape, head);
                             const int64_t bytes = RowBytes(DType::kF16, dim);
                             for (const bool values : {false, true}) {
                               WriteStored(block, shape, head, values, {0, block.n_tokens}, DType::kF16, slots.data(),
                                           scratch.data());
                               const uint8_t* const own = values ? pot.values(layer, kv) : pot.keys(layer, kv);
                               EXPECT_EQ(std::memcmp(slots.data(), own + n_tokens * bytes,
                                                     static_cast<size_t>(block.n_tokens * bytes)),
                                         0);
                             }
                           }
                           for (int64_t i = 0; i < block.n_tokens; ++i) {
                             EXPECT_EQ(TokenOf(block, shape, i).id,
                                       pot.meta(0)[static_cast<size_t>(n_tokens + i)].token_id);
                           }
                           n_tokens += block.n_tokens;
                           return true;
                         })
                  .ok());
  EXPECT_EQ(n_tokens, stream.session->n_seen());

  // The keys of a block are the mean of its tokens', and name the block that has its words.
  int64_t n_blocks = 0;
  ASSERT_TRUE(archive.keys()
                  ->Scan(archive.keys()->begin(),
                         [&](BlockPlace, const Block& block) {
                           EXPECT_TRUE(IsKeyRecord(block, shape));
                           const KeyRecord record = {block, shape};
                           for (int64_t head = 0; head < shape.n_heads(); ++head) {
                             const auto [layer, kv, dim] = Place(shape, head);
                             const uint8_t* const keys = pot.keys(layer, kv);
                             std::vector<float> mean(static_cast<size_t>(dim));
                             for (int64_t seq = block.seq; seq < block.seq_end(); ++seq) {
                               DecodeRow(DType::kF16, keys + seq * RowBytes(DType::kF16, dim), dim, scratch.data());
                               for (size_t d = 0; d < mean.size(); ++d)
                                 mean[d] += scratch[d] / static_cast<float>(block.n_tokens);
                             }
                             for (size_t d = 0; d < mean.size(); ++d) {
                               EXPECT_NEAR(record.scale(head) * record.key(head)[d], mean[d],
                                           0.6 * record.scale(head) + 1e-4);
                             }
                           }
                           int64_t seq = -1;
                           EXPECT_TRUE(archive
                                           .Scan(record.place(),
                                                 [&](BlockPlace, const Block& words) {
                                                   seq = words.seq;
                                                   return false;
                                                 })
                                           .ok());
                           EXPECT_EQ(seq, block.seq);
                           ++n_blocks;
                           return true;
                         })
                  .ok());
  EXPECT_GT(n_blocks, 1);
}

TEST_P(BlockVectorsOfModels, WhatComesBackIsWhatWasStoredAndGoesWithoutATrace) {
  for (const char* policy : {"streaming_llm", "h2o", "inf_mllm"}) {
    Stream stream = std::move(Open("words:restore=kv,gate=0,passages=1,margin=0,near=0", policy)).value();
    Stream other = std::move(Open("words:restore=kv,gate=0,passages=1,margin=0,near=0", policy)).value();
    for (Stream* one : {&stream, &other}) {
      ASSERT_TRUE(Read(*one, " The harpoon lay in the attic." + Sea(80)).ok());
    }
    Session& session = *stream.session;
    EXPECT_EQ(session.ledger().used_bytes(), session.plan().total_bytes) << policy;
    const auto recalled = stream.recall->recaller().Bring(session, " harpoon", 0);
    ASSERT_TRUE(recalled.ok()) << recalled.status().message();
    ASSERT_EQ(std::ssize(recalled->passages), 1) << policy;
    EXPECT_NE(recalled->passages[0].text.find("harpoon"), std::string::npos) << recalled->passages[0].text;
    EXPECT_EQ(recalled->passages[0].seq, 0);

    // Some slot on top of the pot has the very keys and values that the token had when it was first read.
    const Pot& pot = session.pot();
    const VectorShape shape = Shape();
    const int64_t bytes = RowBytes(DType::kF16, shape.heads[0].dim);
    const int64_t n = pot.n_used(0, 0);
    const std::span<const SlotMeta> meta = pot.meta(0);
    int64_t n_checked = 0;
    std::vector<uint8_t> slot(static_cast<size_t>(kKvTokens * bytes));
    std::vector<float> scratch(static_cast<size_t>(shape.most_dim));
    ASSERT_TRUE(stream.recall->archive()
                    .kv()
                    ->ScanRange({0, 1},
                                [&](BlockPlace, const Block& block) {
                                  WriteStored(block, shape, 0, false, {1, 2}, DType::kF16, slot.data(), scratch.data());
                                  for (int64_t s = n - session.n_excerpt(); s < n; ++s) {
                                    if (meta[static_cast<size_t>(s)].token_id != TokenOf(block, shape, 1).id) continue;
                                    n_checked += std::memcmp(slot.data(), pot.keys(0, 0) + s * bytes,
                                                             static_cast<size_t>(bytes)) == 0;
                                  }
                                  return true;
                                })
                    .ok());
    EXPECT_GT(n_checked, 0) << policy;

    ASSERT_TRUE(session.TakeBackExcerpt().ok());
    EXPECT_EQ(session.ledger().peak_bytes(), session.plan().total_bytes) << policy;
    // Its seqs are a gap; all else is as in a session that nobody asked.
    EXPECT_EQ(session.pot().n_used(), other.session->pot().n_used()) << policy;
    for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
      const auto n_bytes = static_cast<size_t>(session.pot().n_used(layer, 0) * session.pot().k_slot_bytes(layer));
      EXPECT_EQ(std::memcmp(session.pot().keys(layer, 0), other.session->pot().keys(layer, 0), n_bytes), 0) << policy;
    }
  }
}

TEST_P(BlockVectorsOfModels, KeysFindSomethingAndThePlanHoldsThem) {
  for (const char* spec : {"keys:gate=0,margin=0", "both:gate=0,margin=0", "both:gate=0,margin=0,rerank=4",
                           "keys:gate=0,margin=0,restore=kv", "words:gate=0,restore=kv,store=f16,again=0.5"}) {
    Stream stream = std::move(Open(spec)).value();
    Session& session = *stream.session;
    EXPECT_EQ(session.ledger().used_bytes(), session.plan().total_bytes) << spec;
    ASSERT_TRUE(Read(stream, " The harpoon lay in the attic." + Sea(150)).ok());
    const int64_t n_seen = session.n_seen();
    const auto recalled = stream.recall->recaller().Bring(session, " Where was the harpoon?", 0);
    ASSERT_TRUE(recalled.ok()) << spec << ": " << recalled.status().message();
    EXPECT_FALSE(recalled->passages.empty()) << spec;
    EXPECT_GT(recalled->best_score, 0) << spec;
    EXPECT_LE(recalled->best_score, 1) << spec;
    EXPECT_EQ(recalled->n_tokens, session.n_excerpt()) << spec;
    ASSERT_TRUE(session.TakeBackExcerpt().ok());
    EXPECT_EQ(session.ledger().peak_bytes(), session.plan().total_bytes) << spec;
    // The questions that were read and taken back are gaps, which break nothing.
    EXPECT_GT(session.n_seen(), n_seen);
    EXPECT_LT(session.held().unbroken_from, n_seen - 100) << spec;
  }
}

TEST_F(BlockVectorsTest, WhatCannotBeIsSaidInOneLine) {
  // Positions of the stream.
  const auto absolute = Open("keys", "a_vl:positions=abs");
  EXPECT_EQ(absolute.status().code(), StatusCode::kUnsupported) << absolute.status().message();
  EXPECT_EQ(Open("words:restore=kv", "full").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(Open("words:restore=telepathy").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Open("words:restore=kv,store=q8_0").ok(), Shape().most_dim % 32 == 0);
}

TEST_F(BlockVectorsTest, AnExcerptDoesNotOutgrowItsRoom) {
  Stream stream = std::move(Open("words")).value();
  ASSERT_TRUE(Read(stream, Sea(10)).ok());
  Session& session = *stream.session;
  const std::vector<SlotMeta> rows(161, SlotMeta{.token_id = 5});
  const auto nothing = [](int32_t, int32_t, uint8_t*, uint8_t*) { FAIL(); };
  const std::vector<uint8_t> before = Saved(session);
  EXPECT_EQ(session.PutExcerpt(rows, nothing).code(), StatusCode::kOverBudget);
  EXPECT_EQ(Saved(session), before);
}

TEST_F(BlockVectorsTest, AnExcerptThatDoesNotFitThePotIsNone) {
  Stream stream = std::move(Open("words")).value();
  ASSERT_TRUE(Read(stream, Sea(10)).ok());
  Session& session = *stream.session;
  const std::vector<uint8_t> before = Saved(session);
  const int64_t n_seen = session.n_seen();
  // No session gets there by itself: a pot keeps slots for excerpts.
  auto& pot = const_cast<Pot&>(session.pot());
  const std::vector<SlotMeta> others(static_cast<size_t>(pot.n_free() - 100), SlotMeta{.token_id = 5});
  ASSERT_TRUE(pot.BeginAppend(others).ok());
  const auto nothing = [](int32_t, int32_t, uint8_t*, uint8_t*) { FAIL(); };
  const std::vector<SlotMeta> rows(150, SlotMeta{.token_id = 5});
  EXPECT_EQ(session.PutExcerpt(rows, nothing).code(), StatusCode::kOverBudget);
  EXPECT_EQ(session.n_excerpt(), 0);
  EXPECT_EQ(session.n_seen(), n_seen);
  EXPECT_EQ(pot.n_free(), 100);
  pot.DropLast(static_cast<int32_t>(others.size()));
  EXPECT_EQ(Saved(session), before);
}

// What a hostile, or stale, file in the archive's folder may do.
class StoredVectorsTest : public BlockVectorsTest {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "block_vectors_" + std::to_string(getpid());
    std::filesystem::remove_all(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  // A stream that has read much, nothing of which was kept.
  Stream Forgetful(const std::string& spec, const std::string& dir = "") const {
    Stream out = std::move(Open(spec, "streaming_llm", dir)).value();
    out.recall->Pause(true);
    EXPECT_TRUE(Read(out, Sea(100)).ok());
    return out;
  }
  static std::vector<std::string> Brought(Stream& stream, const std::string& question) {
    const auto recalled = stream.recall->recaller().Bring(*stream.session, question, 0);
    EXPECT_TRUE(recalled.ok()) << recalled.status().message();
    std::vector<std::string> out;
    if (!recalled.ok()) return out;
    EXPECT_TRUE(std::isfinite(recalled->best_score));
    for (const RecalledPassage& passage : recalled->passages) out.push_back(passage.text);
    for (const SlotMeta& slot : stream.session->pot().meta(0)) {
      EXPECT_GE(slot.token_id, 0);
      EXPECT_LT(slot.token_id, stream.session->model().config().n_vocab);
    }
    EXPECT_TRUE(stream.session->TakeBackExcerpt().ok());
    return out;
  }
  std::string dir_;
};

TEST_F(StoredVectorsTest, KeysThatOutliveTheirWordsBringNothing) {
  const char* const spec = "keys:gate=0,margin=0,near=0,passages=4";
  int64_t seq_end = 0;
  {
    Stream stream = std::move(Open(spec, "streaming_llm", dir_)).value();
    ASSERT_TRUE(Read(stream, " The harpoon lay in the attic." + Sea(20)).ok());
    stream.recall->Flush();
    seq_end = stream.recall->archive().seq_end();
  }
  {  // A second segment, of words only.
    Ledger ledger;
    ArchiveOptions options = {.dir = dir_, .disk_bytes = 64 << 20, .tokenizer_hash = 1};
    const auto archive = std::move(Archive::Open(options, ledger)).value();
    ASSERT_TRUE(archive->Append({.seq = seq_end, .n_tokens = 8, .text = " And then the fog came down."}).ok());
  }
  {
    Stream whole = Forgetful(spec, dir_);
    EXPECT_FALSE(Brought(whole, " harpoon").empty());
  }
  std::filesystem::remove(dir_ + "/00000001.seg");
  Stream stream = Forgetful(spec, dir_);
  ASSERT_GT(stream.recall->archive().keys()->n_segments(), 0);
  EXPECT_EQ(Brought(stream, " harpoon"), std::vector<std::string>());
}

TEST_F(StoredVectorsTest, KeysThatAreNoNumbersAreLeftOut) {
  const VectorShape shape = Shape();
  for (const float scale : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    Stream stream = Forgetful("keys:gate=0,margin=0,near=0,passages=4");
    Archive& archive = stream.recall->archive();
    const char* const texts[] = {"The harpoon lay in the attic.", " A man came.", " The sea was calm."};
    for (int64_t i = 0; i < 3; ++i) {
      Block block = {.seq = 32 * i, .n_tokens = 32, .text = texts[i]};
      ASSERT_TRUE(archive.Append(block).ok());
      std::vector<uint16_t> keys(static_cast<size_t>(shape.key_numbers()));
      const BlockPlace place = archive.newest_place();
      std::memcpy(keys.data(), &place, sizeof(place));
      for (int64_t head = 0; head < shape.n_heads(); ++head) {
        const VectorShape::Head& of = shape.heads[static_cast<size_t>(head)];
        uint16_t* const at = keys.data() + of.key;
        at[0] = F32ToF16(i == 1 && head == shape.n_heads() - 1 ? scale : 0.01f);
        std::memset(at + 1, static_cast<int>(i + 1), static_cast<size_t>(of.dim));
      }
      block.text = {};
      block.body = BlockBody::kOneRow;
      block.rows = keys;
      ASSERT_TRUE(archive.keys()->Append(block).ok());
    }
    const std::vector<std::string> found = Brought(stream, " Where was the harpoon?");
    EXPECT_EQ(found.size(), 2u) << scale;
    EXPECT_EQ(std::ranges::count(found, texts[0]), 1) << scale;
  }
}

// What an answer said is no part of the passage behind it.
TEST_F(StoredVectorsTest, OnlyWordsOfTheInputAreAddedAround) {
  const VectorShape shape = Shape();
  Stream stream = Forgetful("words:restore=kv,gate=0,passages=1,margin=0,near=0");
  Archive& archive = stream.recall->archive();
  EncodeOptions plain;
  plain.add_special = false;
  const struct {
    const char* text;
    Role role;
  } parts[] = {{" No. He said that", Role::kAnswer},
               {" The harpoon lay in the attic.", Role::kInput},
               {" No one.", Role::kAnswer}};
  int64_t seq = 0;
  for (const auto& [text, role] : parts) {
    const std::vector<int32_t> tokens = tokenizer().Encode(text, plain);
    Block block = {.seq = seq, .n_tokens = static_cast<int32_t>(tokens.size()), .role = role, .text = text};
    ASSERT_TRUE(archive.Append(block).ok());
    std::vector<uint16_t> kv(static_cast<size_t>(block.n_tokens * shape.kv_numbers()));
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::memcpy(kv.data() + i * static_cast<size_t>(shape.kv_numbers()), &tokens[i], sizeof(tokens[i]));
    }
    block.text = {};
    block.body = BlockBody::kRowEach;
    block.rows = kv;
    ASSERT_TRUE(archive.kv()->Append(block).ok());
    seq = block.seq_end();
  }
  EXPECT_EQ(Brought(stream, " Where was the harpoon?"), std::vector<std::string>{"The harpoon lay in the attic."});
}

TEST_F(StoredVectorsTest, TokensThatTheModelDoesNotHaveAreReadInstead) {
  const VectorShape shape = Shape();
  const int32_t n_vocab = model_->model().config().n_vocab;
  for (const int32_t id : {n_vocab, -1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    Stream stream = Forgetful("words:restore=kv,gate=0,passages=1,margin=0,near=0");
    Archive& archive = stream.recall->archive();
    const std::string fact = "The harpoon lay in the attic.";
    EncodeOptions plain;
    plain.add_special = false;
    const std::vector<int32_t> tokens = tokenizer().Encode(fact, plain);
    Block block = {.seq = 0, .n_tokens = static_cast<int32_t>(tokens.size()), .text = fact};
    ASSERT_TRUE(archive.Append(block).ok());
    std::vector<uint16_t> kv(static_cast<size_t>(block.n_tokens * shape.kv_numbers()));
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int32_t stored = i == tokens.size() / 2 ? id : tokens[i];
      std::memcpy(kv.data() + i * static_cast<size_t>(shape.kv_numbers()), &stored, sizeof(stored));
    }
    block.text = {};
    block.body = BlockBody::kRowEach;
    block.rows = kv;
    ASSERT_TRUE(archive.kv()->Append(block).ok());
    EXPECT_EQ(Brought(stream, " Where was the harpoon?"), std::vector<std::string>{fact}) << id;
  }
}

}  // namespace
}  // namespace weir
