// SPDX-License-Identifier: Apache-2.0
#include "kv/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kv/held.h"
#include "kv/trace_reader.h"
#include "support/heap.h"

namespace weir {
namespace {

// One reference backend for all pots of this file.
Backend& Ref() {
  static const std::unique_ptr<Backend> backend = MakeRefBackend();
  return *backend;
}

class TraceTest : public ::testing::Test {
 protected:
  void TearDown() override {
    std::remove(path_.c_str());
    std::remove((path_ + ".part").c_str());
  }

  std::string FileText() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void WriteFile(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  static TraceInfo Info(Granularity granularity, bool all_scores = false) {
    TraceInfo info;
    info.model = "a \"model\"\n";
    info.policy = "h2o:recent=0.5";
    info.pot.n_layers = 2;
    info.pot.n_kv_heads = 2;
    info.pot.n_slots = 8;
    info.pot.granularity = granularity;
    info.all_scores = all_scores;
    // Token 3 is the first half of a character, token 4 the second.
    info.piece = [](int32_t id) {
      return id == 3 ? std::string("\xc3") : id == 4 ? std::string("\xa4") : "w" + std::to_string(id);
    };
    return info;
  }

  // Tokens [first, end) of a stream whose token ids are seq % 5 and whose time is 10 ms per four tokens.
  static SlotMeta Token(int64_t seq) {
    SlotMeta m;
    m.seq = seq;
    m.token_id = static_cast<int32_t>(seq % 5);
    m.t_src_ms = seq / 4 * 10;
    m.pinned = seq == 1;
    m.modality = seq == 3 ? Modality::kImage : seq >= 5 && seq < 9 ? Modality::kVideo : Modality::kText;
    return m;
  }

  // Simulates a selection: the kept slots replace *slots.
  static Status Play(TraceWriter& writer, int64_t step, int64_t n_seen, int32_t layer, int32_t head,
                     std::vector<SlotMeta>* slots, const KeepSet& keep, bool scored = false) {
    std::vector<float> scores, nll;
    for (const SlotMeta& m : *slots) {
      scores.push_back(static_cast<float>(m.seq) / 2);
      nll.push_back(m.seq == 0 ? INFINITY : static_cast<float>(m.seq));
    }
    TraceSelection selection;
    selection.step = step;
    selection.n_seen = n_seen;
    selection.layer = layer;
    selection.head = head;
    selection.slots = *slots;
    if (scored) {
      selection.scores = scores;
      selection.nll = nll;
    }
    selection.keep = &keep;
    selection.reason = "pot full";
    const Status written = writer.Selected(selection);
    std::vector<SlotMeta> kept;
    for (const int32_t slot : keep) kept.push_back((*slots)[static_cast<size_t>(slot)]);
    *slots = kept;
    return written;
  }
  static void Read(std::vector<SlotMeta>* slots, int64_t first, int64_t end) {
    for (int64_t seq = first; seq < end; ++seq) slots->push_back(Token(seq));
  }
  static std::vector<int64_t> Seqs(const std::vector<SeqRun>& runs) {
    std::vector<int64_t> out;
    for (const SeqRun& run : runs) {
      for (int64_t i = 0; i < run.count; ++i) out.push_back(run.first + i);
    }
    return out;
  }

  std::string path_ = ::testing::TempDir() + "weir_trace_test_" + std::to_string(getpid()) + ".jsonl";
};

TEST_F(TraceTest, WhatWasWrittenIsReadBack) {
  auto writer = std::move(TraceWriter::Open(path_, Info(Granularity::kPerHead))).value();
  std::vector<SlotMeta> slots[4];
  for (auto& group : slots) Read(&group, 0, 8);
  const KeepSet keeps[4] = {{0, 1, 6, 7}, {1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7}, {1}};
  std::vector<std::vector<SlotMeta>> before;
  for (int g = 0; g < 4; ++g) ASSERT_TRUE(Play(*writer, 0, 8, g / 2, g % 2, &slots[g], keeps[g], true).ok());
  for (auto& group : slots) Read(&group, 8, 10);
  ASSERT_TRUE(Play(*writer, 1, 10, 0, 0, &slots[0], {1, 4, 5}, true).ok());
  EXPECT_TRUE(FileText().empty()) << "not there before it is whole";
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_EQ(writer->Close().code(), StatusCode::kIo);

  auto reader = std::move(TraceReader::Open(path_)).value();
  EXPECT_EQ(reader->head().model, "a \"model\"\n");
  EXPECT_EQ(reader->head().policy, "h2o:recent=0.5");
  EXPECT_EQ(reader->head().pot.n_groups(), 4);
  TraceStep step;
  for (int g = 0; g < 4; ++g) {
    ASSERT_TRUE(*reader->Next(&step));
    EXPECT_EQ(step.group, g);
    EXPECT_EQ(step.layer, g / 2);
    EXPECT_EQ(step.head, g % 2);
    EXPECT_EQ(step.n_keep, static_cast<int64_t>(keeps[g].size()));
    EXPECT_EQ(step.reason, "pot full");
    EXPECT_EQ(Seqs(step.before), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(Seqs(reader->held(g)), std::vector<int64_t>(keeps[g].begin(), keeps[g].end()));
    // One score and one NLL per dropped slot, in order.
    const std::vector<int64_t> dropped = Seqs(step.dropped);
    ASSERT_EQ(step.scores.size(), dropped.size());
    ASSERT_EQ(step.nll.size(), dropped.size());
    for (size_t i = 0; i < dropped.size(); ++i) {
      EXPECT_FLOAT_EQ(step.scores[i], static_cast<float>(dropped[i]) / 2);
      if (dropped[i] == 0) {
        EXPECT_TRUE(std::isnan(step.nll[i]));
      } else {
        EXPECT_FLOAT_EQ(step.nll[i], static_cast<float>(dropped[i]));
      }
    }
  }
  ASSERT_TRUE(*reader->Next(&step));
  EXPECT_EQ(Seqs(step.before), (std::vector<int64_t>{0, 1, 6, 7, 8, 9}));
  EXPECT_EQ(Seqs(reader->held(0)), (std::vector<int64_t>{1, 8, 9}));
  EXPECT_EQ(Seqs(reader->held(3)), (std::vector<int64_t>{1, 8, 9}));
  EXPECT_FALSE(*reader->Next(&step));
  EXPECT_FALSE(reader->counters().has_value());
  ASSERT_EQ(reader->n_tokens(), 10);
  for (int64_t seq = 0; seq < 10; ++seq) {
    const TraceToken& token = reader->tokens()[static_cast<size_t>(seq)];
    EXPECT_EQ(token.id, Token(seq).token_id);
    EXPECT_EQ(token.t_src_ms, Token(seq).t_src_ms);
    EXPECT_EQ(token.pinned, Token(seq).pinned);
    EXPECT_EQ(token.modality, Token(seq).modality);
  }
  ASSERT_NE(reader->piece(3), nullptr);
  EXPECT_EQ(*reader->piece(3), "\xc3");
  EXPECT_EQ(*reader->piece(2), "w2");
  EXPECT_EQ(reader->piece(5), nullptr);
}

// A pot whose layers have their own KV heads: groups are theirs, and a file that says otherwise is refused.
TEST_F(TraceTest, LayersOfTheirOwn) {
  TraceInfo info = Info(Granularity::kPerHead);
  info.pot.SetLayers({{1, 64}, {2, 32}, {1, 64}});
  auto writer = std::move(TraceWriter::Open(path_, info)).value();
  const int32_t layers[] = {0, 1, 1, 2}, heads[] = {0, 0, 1, 0};
  std::vector<SlotMeta> slots[4];
  for (auto& group : slots) Read(&group, 0, 8);
  const KeepSet keeps[4] = {{0, 1}, {1, 2, 3}, {1, 7}, {1, 4, 5, 6}};
  for (int g = 0; g < 4; ++g) ASSERT_TRUE(Play(*writer, 0, 8, layers[g], heads[g], &slots[g], keeps[g]).ok());
  ASSERT_TRUE(writer->Close().ok());
  auto reader = std::move(TraceReader::Open(path_)).value();
  EXPECT_EQ(reader->head().pot.n_groups(), 4);
  TraceStep step;
  for (int g = 0; g < 4; ++g) {
    auto more = reader->Next(&step);
    ASSERT_TRUE(more.ok() && *more) << more.status().message();
    EXPECT_EQ(step.group, g);
    EXPECT_EQ(reader->head().pot.layer_of(g), layers[g]);
    EXPECT_EQ(reader->head().pot.head_of(g), heads[g]);
    EXPECT_EQ(Seqs(reader->held(g)), std::vector<int64_t>(keeps[g].begin(), keeps[g].end()));
  }
  const std::string good = FileText(), list = "\"layer_kv_heads\":[1,2,1]";
  for (const char* bad : {"\"layer_kv_heads\":[1,2]", "\"layer_kv_heads\":[1,1,1]", "\"layer_kv_heads\":[1,2,0]",
                          "\"layer_kv_heads\":[1,2,3]", "\"layer_kv_heads\":[1,2,\"1\"]", "\"layer_kv_heads\":4"}) {
    std::string text = good;
    text.replace(text.find(list), list.size(), bad);
    WriteFile(text);
    EXPECT_FALSE(TraceReader::Open(path_).ok()) << bad;
  }
  std::string text = good;  // a head that its layer does not have
  text.replace(text.find("\"layer\":0,\"head\":0"), 18, "\"layer\":0,\"head\":1");
  WriteFile(text);
  EXPECT_FALSE(std::move(TraceReader::Open(path_)).value()->Next(&step).ok());
}

TEST_F(TraceTest, AllScoresAndRestarts) {
  auto writer = std::move(TraceWriter::Open(path_, Info(Granularity::kGlobal, true))).value();
  std::vector<SlotMeta> slots;
  Read(&slots, 0, 8);
  ASSERT_TRUE(Play(*writer, 0, 8, -1, -1, &slots, {1, 7}, true).ok());
  ASSERT_TRUE(writer->Restarted().ok());
  slots.clear();
  Read(&slots, 0, 4);
  ASSERT_TRUE(Play(*writer, 0, 4, -1, -1, &slots, {1}, true).ok());
  ASSERT_TRUE(writer->Close().ok());
  auto reader = std::move(TraceReader::Open(path_)).value();
  TraceStep step;
  ASSERT_TRUE(*reader->Next(&step));
  EXPECT_EQ(step.scores.size(), 8u);
  EXPECT_EQ(reader->n_restarts(), 0);
  ASSERT_TRUE(*reader->Next(&step));
  EXPECT_EQ(reader->n_restarts(), 1);
  EXPECT_EQ(step.n_slots, 4);
  EXPECT_EQ(reader->n_tokens(), 4);
  EXPECT_EQ(Seqs(reader->held(0)), std::vector<int64_t>{1});
}

// A picture whose positions have two axes carries its columns in its token ids.
TEST_F(TraceTest, PicturesHaveNoTokens) {
  auto writer = std::move(TraceWriter::Open(path_, Info(Granularity::kGlobal))).value();
  std::vector<SlotMeta> slots;
  Read(&slots, 0, 8);
  for (size_t slot = 3; slot < 7; ++slot) slots[slot].token_id = -5;
  ASSERT_TRUE(Play(*writer, 0, 8, -1, -1, &slots, {1, 4, 7}).ok());
  ASSERT_TRUE(writer->Close().ok());
  auto reader = std::move(TraceReader::Open(path_)).value();
  TraceStep step;
  const auto more = reader->Next(&step);
  ASSERT_TRUE(more.ok()) << more.status().message();
  EXPECT_EQ(step.n_slots, 8);
}

// Windows of equal length, each read by a session that was reset: one selection with the same numbers again and again.
TEST_F(TraceTest, ARestartIsNoticed) {
  auto writer = std::move(TraceWriter::Open(path_, Info(Granularity::kPerLayer))).value();
  for (int window = 0; window < 3; ++window) {
    for (int layer = 0; layer < 2; ++layer) {
      std::vector<SlotMeta> slots;
      Read(&slots, 0, 6 + window / 2);
      ASSERT_TRUE(Play(*writer, 0, 6 + window / 2, layer, -1, &slots, {1, 5}).ok());
    }
  }
  ASSERT_TRUE(writer->Close().ok());
  auto reader = std::move(TraceReader::Open(path_)).value();
  TraceStep step;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(*reader->Next(&step));
    EXPECT_EQ(reader->n_restarts(), i / 2);
    EXPECT_EQ(step.n_slots, i < 4 ? 6 : 7);
  }
  EXPECT_FALSE(*reader->Next(&step));
}

// Where a token attended, told twice; fewer tokens are those of a session that was emptied.
TEST_F(TraceTest, AttentionOfTheSameTokensIsNoRestart) {
  Ledger ledger;
  TraceInfo info = Info(Granularity::kPerLayer);
  info.pot.head_dim = 4;
  info.attention_rows = 4;
  auto pot = std::move(Pot::Make(info.pot, Ref(), ledger)).value();
  std::vector<SlotMeta> tokens;
  Read(&tokens, 0, 6);
  ASSERT_TRUE(pot->BeginAppend(tokens).ok());
  auto writer = std::move(TraceWriter::Open(path_, info)).value();
  const std::vector<float> scores(16, 0.125f);
  AttentionWatch watch;
  watch.out = const_cast<float*>(scores.data());
  watch.stride = 8;
  ASSERT_TRUE(writer->Attended(*pot, 6, watch).ok());
  ASSERT_TRUE(writer->Attended(*pot, 6, watch).ok());
  pot->Clear();
  tokens.resize(5);
  ASSERT_TRUE(pot->BeginAppend(tokens).ok());
  ASSERT_TRUE(writer->Attended(*pot, 5, watch).ok());
  ASSERT_TRUE(writer->Close().ok());
  std::string order;
  std::istringstream lines(FileText());
  for (std::string line; std::getline(lines, line);) order += nlohmann::json::parse(line)["type"].get<std::string>()[0];
  EXPECT_EQ(order, "ttaaaartaa");

  auto reader = std::move(TraceReader::Open(path_)).value();
  std::vector<int64_t> seqs, layers;
  reader->OnAttention([&](const TraceAttention& attention) {
    seqs.push_back(attention.seq);
    layers.push_back(attention.layer);
    EXPECT_EQ(attention.scores, std::vector<float>(static_cast<size_t>(attention.seq) + 1, 0.125f));
  });
  TraceStep step;
  while (*reader->Next(&step)) {
  }
  EXPECT_EQ(seqs, (std::vector<int64_t>{5, 5, 5, 5, 4, 4}));
  EXPECT_EQ(layers, (std::vector<int64_t>{0, 1, 0, 1, 0, 1}));
  // Lines that do not fit what was before them.
  const std::string good = FileText();
  for (const auto& [from, to] : {std::pair("\"n_seen\":6", "\"n_seen\":7"),
                                 {"\"layer\":1", "\"layer\":2"},
                                 {"\"score\":[0.125,", "\"score\":["},
                                 {"\"score\":[0.125", "\"score\":[\"x\""}}) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos) << from;
    WriteFile(bad.replace(bad.find(from), std::string(from).size(), to));
    auto damaged = std::move(TraceReader::Open(path_)).value();
    EXPECT_EQ(damaged->Next(&step).status().code(), StatusCode::kCorrupt) << to;
  }
}

// Text is read back as it was; what JSON does not ask to be escaped is not.
TEST_F(TraceTest, NamesOfAllLetters) {
  TraceInfo info = Info(Granularity::kGlobal);
  info.model = std::string("a\x01 \x1f\x7f \"q\" \\ ") + "\xc3\xa4\xf0\x9f\xa6\x8a~";
  auto writer = std::move(TraceWriter::Open(path_, info)).value();
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_EQ(std::move(TraceReader::Open(path_)).value()->head().model, info.model);
  EXPECT_NE(FileText().find("a\\u0001 \\u001f\\u007f \\\"q\\\" \\\\ \xc3\xa4"), std::string::npos) << FileText();
}

TEST_F(TraceTest, TheEndNamesTheNewestTokensAndCounts) {
  Ledger ledger;
  TraceInfo info = Info(Granularity::kPerLayer);
  info.pot.head_dim = 4;
  auto pot = std::move(Pot::Make(info.pot, Ref(), ledger)).value();
  std::vector<SlotMeta> tokens;
  Read(&tokens, 0, 8);
  ASSERT_TRUE(pot->BeginAppend(tokens).ok());
  auto writer = std::move(TraceWriter::Open(path_, info)).value();
  const KeepSet keeps[2] = {{0, 1, 7}, {1, 6, 7}};
  for (int32_t group = 0; group < 2; ++group) {
    TraceSelection selection;
    selection.n_seen = 8;
    selection.layer = group;
    selection.slots = pot->meta(group);
    selection.keep = &keeps[group];
    ASSERT_TRUE(writer->Selected(selection).ok());
    ASSERT_TRUE(pot->Compact(group, keeps[group]).ok());
  }
  tokens.clear();
  Read(&tokens, 8, 11);
  ASSERT_TRUE(pot->BeginAppend(tokens).ok());
  ASSERT_TRUE(writer->Close(*pot, 11).ok());

  auto reader = std::move(TraceReader::Open(path_)).value();
  TraceStep step;
  while (*reader->Next(&step)) {
  }
  EXPECT_EQ(reader->n_tokens(), 11);
  for (int32_t group = 0; group < 2; ++group) {
    std::vector<int64_t> seqs;
    for (const SlotMeta& m : pot->meta(group)) seqs.push_back(m.seq);
    EXPECT_EQ(Seqs(reader->held(group)), seqs);
  }
  ASSERT_TRUE(reader->counters().has_value());
  EXPECT_EQ(reader->counters()->seen, 11);
  EXPECT_EQ(reader->counters()->kept, 7);  // 0, 1, 6, 7, 8, 9, 10
  EXPECT_EQ(reader->counters()->dropped, 4);
  EXPECT_EQ(reader->counters()->selections, 1);

  const Held held = SummarizeHeld(*pot, 11);
  EXPECT_EQ(held.n_kept, 7);
  EXPECT_EQ(held.oldest_unpinned, 0);
  EXPECT_EQ(held.n_kept_by, (std::array<int64_t, kNumModalities>{4, 0, 3}));  // 6, 7 and 8 are frames
  EXPECT_EQ(held.unbroken_from, 7);
  EXPECT_EQ(held.n_pinned, 1);
}

// Seqs far apart, as in a stream of years.
TEST_F(TraceTest, HeldOfALongStream) {
  Ledger ledger;
  PotShape shape = Info(Granularity::kPerHead).pot;
  shape.head_dim = 4;
  auto pot = std::move(Pot::Make(shape, Ref(), ledger)).value();
  EXPECT_EQ(SummarizeHeld(*pot, 0).n_kept, 0);
  EXPECT_EQ(SummarizeHeld(*pot, 0).oldest_unpinned, -1);
  std::vector<SlotMeta> tokens;
  for (const int64_t seq :
       {int64_t{1}, int64_t{70000}, int64_t{1} << 40, (int64_t{1} << 40) + 65535, (int64_t{1} << 40) + 65536}) {
    tokens.push_back(Token(seq));
  }
  ASSERT_TRUE(pot->BeginAppend(tokens).ok());
  const Held held = SummarizeHeld(*pot, (int64_t{1} << 40) + 65537);
  EXPECT_EQ(held.n_kept, 5);
  EXPECT_EQ(held.oldest_unpinned, 70000);
  EXPECT_EQ(held.unbroken_from, (int64_t{1} << 40) + 65535);
}

// Nothing was planned for the lines: a pot of any size passes through the same memory.
TEST_F(TraceTest, ALargePotTakesNoMoreMemoryThanASmallOne) {
  constexpr int32_t kSlots = 100'000;
  std::vector<SlotMeta> slots;
  for (int64_t seq = 0; seq < kSlots; ++seq) slots.push_back(Token(seq));
  const std::vector<float> scores(slots.size(), 1.0f / 3), nll(slots.size(), 2.5f);
  KeepSet keep;
  for (int32_t slot = 0; slot < kSlots; slot += 2) keep.push_back(slot);
  for (const bool all_scores : {false, true}) {
    auto trace = std::move(TraceWriter::Open(path_, Info(Granularity::kGlobal, all_scores))).value();
    const int64_t before = testing::HeapInUse();
    TraceSelection selection;
    selection.slots = slots;
    selection.scores = scores;
    selection.nll = nll;
    selection.keep = &keep;
    ASSERT_TRUE(trace->Selected(selection).ok());
    EXPECT_LT(testing::HeapInUse() - before, 128 << 10);
    ASSERT_TRUE(trace->Close().ok());
    const std::string text = FileText();
    const nlohmann::json line = nlohmann::json::parse(text.substr(text.rfind('\n', text.size() - 2) + 1));
    const size_t n = all_scores ? slots.size() : slots.size() - keep.size();
    EXPECT_EQ(line["drop"].size(), slots.size() - keep.size());
    EXPECT_EQ(line["score"].size(), n);
    EXPECT_EQ(line["nll"].size(), n);
  }
}

TEST_F(TraceTest, AFullDiskIsTold) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(TraceWriter::Open("/dev/full", Info(Granularity::kGlobal)).status().code(), StatusCode::kIo);
}

// Each damage to a good file is an error that names the line, or a file that reads differently; never a crash.
TEST_F(TraceTest, DamagedFilesAreRefused) {
  const std::string head =
      "{\"type\":\"trace\",\"version\":1,\"model\":\"m\",\"policy\":\"p\",\"layers\":1,\"kv_heads\":1,\"slots\":8,"
      "\"spread\":1,"
      "\"granularity\":\"per_head\",\"positions\":\"cache\",\"all_scores\":false}\n";
  const std::string tokens = "{\"type\":\"tokens\",\"seq\":0,\"ids\":[5,6,7],\"t_src_ms\":[[0,3]]}\n";
  const auto code = [&](const std::string& text) {
    WriteFile(text);
    auto reader = TraceReader::Open(path_);
    if (!reader.ok()) return reader.status().code();
    TraceStep step;
    for (;;) {
      const auto more = (*reader)->Next(&step);
      if (!more.ok()) {
        EXPECT_NE(more.status().message().find("line "), std::string::npos) << more.status().message();
        return more.status().code();
      }
      if (!*more) return StatusCode::kOk;
    }
  };
  const auto select = [](const std::string& more) {
    return "{\"type\":\"select\",\"step\":0,\"n_seen\":3,\"reason\":\"r\"," + more + "}\n";
  };
  EXPECT_EQ(
      code(head + tokens + select("\"layer\":0,\"head\":0,\"n\":3,\"keep\":1,\"drop\":[[0,2]],\"score\":[1,null]")),
      StatusCode::kOk);
  for (const std::string& text : {std::string(), std::string("hello\n"), std::string("{}\n"), head.substr(0, 90),
                                  std::string("{\"type\":\"trace\",\"version\":1}\n"), std::string(1000, '[')}) {
    EXPECT_EQ(code(text), StatusCode::kCorrupt) << text;
  }
  for (const std::string& line : {
           std::string("x\n"),
           std::string("[]\n"),
           std::string("{\"type\":\"other\"}\n"),
           std::string("{\"type\":7}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":4,\"ids\":[1],\"t_src_ms\":[[0,1]]}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"ids\":[1],\"t_src_ms\":[[0,9000000000000]]}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"ids\":[1],\"t_src_ms\":[]}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"t_src_ms\":[]}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"ids\":[4294967296],\"t_src_ms\":[[0,1]]}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"ids\":[1],\"t_src_ms\":[[0,1]],\"pinned\":[[0,2]]}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"ids\":[1],\"t_src_ms\":[[0,1]],\"image\":[[0,2]]}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"ids\":[1,2],\"t_src_ms\":[[0,2]],\"pinned\":[[1,2]]}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"ids\":[1],\"t_src_ms\":[[0,1]],\"video\":7}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"ids\":[1],\"t_src_ms\":[[0,1]],\"pieces\":{\"x\":\"a\"}}\n"),
           std::string("{\"type\":\"tokens\",\"seq\":3,\"ids\":[1],\"t_src_ms\":[[0,1]],\"pieces\":{\"1\":[256]}}\n"),
           std::string("{\"type\":\"end\",\"seen\":-1,\"kept\":0,\"dropped\":0,\"selections\":0}\n"),
           select("\"layer\":1,\"head\":0,\"n\":3,\"keep\":3,\"drop\":[]"),
           select("\"layer\":0,\"head\":-1,\"n\":3,\"keep\":3,\"drop\":[]"),
           select("\"layer\":0,\"head\":0,\"n\":4,\"keep\":4,\"drop\":[]"),
           select("\"layer\":0,\"head\":0,\"n\":3,\"keep\":2,\"drop\":[]"),
           select("\"layer\":0,\"head\":0,\"n\":3,\"keep\":2,\"drop\":[3]"),
           select("\"layer\":0,\"head\":0,\"n\":3,\"keep\":1,\"drop\":[2,1]"),
           select("\"layer\":0,\"head\":0,\"n\":3,\"keep\":1,\"drop\":[[1,18446744073709551615]]"),
           select("\"layer\":0,\"head\":0,\"n\":3,\"keep\":2,\"drop\":[0],\"score\":[1,2]"),
           select("\"layer\":0,\"head\":0,\"n\":3,\"keep\":2,\"drop\":[0],\"nll\":[\"x\"]"),
       }) {
    EXPECT_EQ(code(head + tokens + line), StatusCode::kCorrupt) << line;
  }
  std::string version = head;
  version.replace(version.find("version\":1"), 10, "version\":2");
  EXPECT_EQ(code(version), StatusCode::kUnsupported);
  EXPECT_EQ(TraceReader::Open("/").status().code(), StatusCode::kIo);
  EXPECT_EQ(TraceReader::Open(path_ + ".none").status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace weir
