// SPDX-License-Identifier: Apache-2.0
// Rows of a prompt that wait behind its first layers (engine/session/late_rows.h): what FastV and A-VL's P drop is
// neither computed nor stored behind them, and whoever looks before the prompt ends sees a prompt read as a whole.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/edited_model.h"
#include "engine/session.h"
#include "engine/step_batch.h"
#include "kv/trace_reader.h"
#include "support/tiny.h"

namespace weir::testing {
namespace {

constexpr int32_t kText = 5, kImage = 40, kQuestion = 9;
constexpr double kClose = 1e-4;

// A model that is the last layers of the tiny Llama.
struct UpperLayers {
  Ledger ledger;
  std::unique_ptr<Backend> backend = MakeCpuBackend(2);
  std::string bytes;
  std::unique_ptr<Model> model;

  explicit UpperLayers(int32_t n_below) {
    EditedModel edited("llama");
    std::vector<EditedTensor> tensors;
    for (EditedTensor& tensor : edited.tensors) {
      if (tensor.name.starts_with("blk.")) {
        const size_t dot = tensor.name.find('.', 4);
        const int32_t layer = std::stoi(tensor.name.substr(4, dot - 4));
        if (layer < n_below) continue;
        tensor.name = "blk." + std::to_string(layer - n_below) + tensor.name.substr(dot);
      }
      tensors.push_back(std::move(tensor));
    }
    edited.tensors = std::move(tensors);
    int64_t& n_layers = std::get<int64_t>(edited.metadata.at("llama.block_count").v);
    n_layers -= n_below;
    bytes = edited.Bytes();
    const auto file =
        GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "upper layers").value();
    model = std::move(LoadModel(*file, *backend, ledger)).value();
  }
};

std::unique_ptr<Session> Make(Model& model, Backend& backend, const std::string& policy, int32_t pot,
                              bool watch = false) {
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec(policy)).value();
  options.pot_slots = pot;
  options.k_type = options.v_type = DType::kF32;
  options.watch_attention = watch;
  auto session = Session::Make(model, backend, options);
  EXPECT_TRUE(session.ok()) << session.status().message();
  return std::move(session).value();
}

class LateRowsTest : public ::testing::Test {
 protected:
  LateRowsTest()
      : tokens_(RandomTokens(400, tiny_.model->config().n_vocab)),
        rows_(static_cast<size_t>(kImage * tiny_.model->config().n_embd)) {
    Rng rng(5);
    for (float& v : rows_) v = static_cast<float>(rng.Uniform() * 2 - 1);
  }

  std::unique_ptr<Session> Make(const std::string& policy, int32_t pot = 128, bool watch = false) {
    return testing::Make(*tiny_.model, *tiny_.backend, policy, pot, watch);
  }
  void Begin(Session& session, const TensorObserver* observer = nullptr) {
    Session::AppendOptions options;
    options.observer = observer;
    ASSERT_TRUE(session.Append({tokens_.data(), kText}, options).ok());
    ASSERT_TRUE(session.AppendEmbeddings(rows_, Modality::kImage, options).ok());
  }
  void End(Session& session, const TensorObserver* observer = nullptr) {
    Session::AppendOptions options;
    options.observer = observer;
    options.end_of_prompt = true;
    ASSERT_TRUE(session.Append({tokens_.data() + kText, kQuestion}, options).ok());
    EXPECT_EQ(session.ledger().peak_bytes(), session.plan().total_bytes);
  }
  void Ask(Session& session, const TensorObserver* observer = nullptr) {
    Begin(session, observer);
    End(session, observer);
  }
  std::vector<float> Next(Session& session, size_t i = 100) {
    Session::AppendOptions answer;
    answer.generated = true;
    EXPECT_TRUE(session.Append({&tokens_[i], 1}, answer).ok());
    return LogitsOf(session);
  }
  static double Apart(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    return RelativeError(a.data(), b.data(), a.size());
  }
  // What leaves layer n_below - 1 when every row of the prompt is computed, [rows, n_embd].
  std::vector<float> StreamBehind(int32_t n_below, const std::string& policy) {
    std::vector<float> out;
    const TensorObserver observer = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
      if (name == "blk." + std::to_string(n_below - 1) + ".out") out.insert(out.end(), data, data + n_rows * n_cols);
    };
    auto session = Make(policy);
    Ask(*session, &observer);
    return out;
  }
  // The layers behind the first ones equal a model of them alone, which is shown only what its rows hold.
  void ExpectOnlyKeptRowsGoOn(const std::string& policy, int32_t n_below) {
    SCOPED_TRACE(policy);
    auto session = Make(policy);
    ASSERT_EQ(session->plan().late_rows, 128);
    Ask(*session);
    const std::vector<float> stream = StreamBehind(n_below, policy);
    const auto n_embd = static_cast<size_t>(tiny_.model->config().n_embd);
    ASSERT_EQ(stream.size(), (kText + kImage + kQuestion) * n_embd);
    std::vector<float> kept;
    const std::vector<int64_t> held = Held(*session)[static_cast<size_t>(n_below)];
    ASSERT_LT(std::ssize(held), kText + kImage + kQuestion);
    for (const int64_t seq : held) {
      const auto row = stream.begin() + seq * static_cast<int64_t>(n_embd);
      kept.insert(kept.end(), row, row + static_cast<int64_t>(n_embd));
    }
    UpperLayers upper(n_below);
    auto alone = testing::Make(*upper.model, *upper.backend, "tova", 128);
    // The rows before the picture saw what the others do not: they are the same in both.
    Session::AppendOptions prompt;
    prompt.end_of_prompt = true;
    ASSERT_TRUE(alone->AppendEmbeddings(kept, Modality::kImage, prompt).ok());
    EXPECT_LT(Apart(LogitsOf(*session), LogitsOf(*alone)), kClose);
    const PotShape& shape = alone->pot().shape();
    for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
      ASSERT_EQ(Held(*session)[static_cast<size_t>(layer + n_below)], held);
      for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
        const auto floats = [&](const uint8_t* slots) {
          const auto* f = reinterpret_cast<const float*>(slots);
          return std::vector<float>(f, f + held.size() * static_cast<size_t>(shape.head_dim));
        };
        EXPECT_LT(Apart(floats(session->pot().keys(layer + n_below, head)), floats(alone->pot().keys(layer, head))),
                  kClose);
        EXPECT_LT(Apart(floats(session->pot().values(layer + n_below, head)), floats(alone->pot().values(layer, head))),
                  kClose);
      }
    }
    // The last row's attention is what the policy ranks by next.
    if (policy.starts_with("fastv")) {
      for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
        const auto own = session->pot().scores(layer + n_below), want = alone->pot().scores(layer);
        ASSERT_EQ(own.size(), want.size());
        for (size_t slot = 0; slot < own.size(); ++slot) EXPECT_NEAR(own[slot], want[slot], 1e-4);
      }
    }
  }

  Tiny tiny_{"llama"};
  const std::vector<int32_t> tokens_;
  std::vector<float> rows_;
};

TEST_F(LateRowsTest, OnlyKeptRowsGoOn) {
  ExpectOnlyKeptRowsGoOn("fastv:K=1,R=0.75", 1);
  ExpectOnlyKeptRowsGoOn("fastv:K=1,R=0.5", 1);
  ExpectOnlyKeptRowsGoOn("fastv:K=2,R=0.5", 2);
  ExpectOnlyKeptRowsGoOn("a_vl:P=0.5,S=1,C=1", 2);
}

// With one layer behind, its keys and values are those of a prompt read as a whole, wherever positions come from; only
// what the prompt's own rows saw there differs.
TEST_F(LateRowsTest, TheFirstTokenFeelsTheLossAndWhatIsStoredIsTheSame) {
  for (const char* policy : {"fastv:K=2,R=0.75", "fastv:K=2,R=0.75,positions=abs", "a_vl:P=0.3,S=1,C=1,K=0",
                             "a_vl:P=0.3,S=1,C=1,K=0,positions=abs"}) {
    SCOPED_TRACE(policy);
    auto kept = Make(policy), all = Make(std::string(policy) + ",rows=all");
    EXPECT_EQ(all->plan().late_rows, 0);
    EXPECT_GT(kept->plan().total_bytes, all->plan().total_bytes);
    Ask(*kept);
    Ask(*all);
    EXPECT_EQ(Held(*kept), Held(*all));
    EXPECT_GT(Apart(LogitsOf(*kept), LogitsOf(*all)), 1e-3);
    EXPECT_LT(Apart(Next(*kept), Next(*all)), kClose);
    EXPECT_EQ(kept->counters().dropped, all->counters().dropped);
    EXPECT_EQ(kept->n_slots_read(), all->n_slots_read());
  }
}

TEST_F(LateRowsTest, TextAloneDoesNotWait) {
  auto kept = Make("fastv:K=1"), all = Make("fastv:K=1,rows=all");
  for (Session* session : {kept.get(), all.get()}) {
    Session::AppendOptions prompt;
    prompt.end_of_prompt = true;
    ASSERT_TRUE(session->Append({tokens_.data(), 60}, prompt).ok());
  }
  EXPECT_EQ(LogitsOf(*kept), LogitsOf(*all));
  EXPECT_EQ(Next(*kept), Next(*all));
}

// Whoever looks in the middle of a prompt lets its rows go on: the prompt is then one that was read as a whole.
TEST_F(LateRowsTest, LookingBeforeTheEndLetsRowsGoOn) {
  auto all = Make("fastv:K=1,rows=all");
  Begin(*all);
  const std::vector<float> middle = LogitsOf(*all);
  End(*all);
  const std::vector<float> last = LogitsOf(*all);

  auto logits = Make("fastv:K=1");
  Begin(*logits);
  EXPECT_LT(Apart(LogitsOf(*logits), middle), kClose);
  End(*logits);
  EXPECT_LT(Apart(LogitsOf(*logits), last), kClose);
  EXPECT_EQ(Held(*logits), Held(*all));

  auto likely = Make("fastv:K=1");
  Begin(*likely);
  int32_t id = 0;
  float value = 0;
  ASSERT_TRUE(likely->MostLikely({&id, 1}, {&value, 1}).ok());
  EXPECT_NEAR(value, *std::ranges::max_element(middle), 1e-3);

  auto saved = Make("fastv:K=1"), restored = Make("fastv:K=1"), copy = Make("fastv:K=1");
  Begin(*restored);  // its own rows are forgotten
  Begin(*copy);
  Begin(*saved);
  std::vector<uint8_t> bytes, again;
  ASSERT_TRUE(saved->Save(&bytes).ok());
  EXPECT_EQ(std::ssize(bytes), saved->state_bytes());
  ASSERT_TRUE(restored->Restore(bytes).ok());
  ASSERT_TRUE(restored->Save(&again).ok());
  EXPECT_EQ(again, bytes);
  auto source = Make("fastv:K=1");
  Begin(*source);
  ASSERT_TRUE(copy->CopyFrom(*source).ok());
  for (Session* session : {saved.get(), restored.get(), copy.get(), source.get()}) {
    End(*session);
    EXPECT_LT(Apart(LogitsOf(*session), last), kClose);
  }
}

// An answer that begins without the end of a prompt, alone or with others.
TEST_F(LateRowsTest, AnAnswerLetsRowsGoOn) {
  auto all = Make("fastv:K=1,rows=all"), one = Make("fastv:K=1");
  Begin(*all);
  Begin(*one);
  EXPECT_LT(Apart(Next(*one), Next(*all)), kClose);

  auto first = Make("fastv:K=1"), second = Make("fastv:K=1"), alone = Make("fastv:K=1,rows=all");
  Ledger ledger;
  const StepBatch::Shape shape = StepBatch::ShapeFor(first->plan(), 2);
  auto batch = std::move(StepBatch::Make(*tiny_.model, *tiny_.backend, shape, ledger)).value();
  for (Session* session : {first.get(), second.get(), alone.get()}) Begin(*session);
  std::vector<StepBatch::Step> steps(2);
  steps[0].session = first.get();
  steps[1].session = second.get();
  steps[0].token = steps[1].token = tokens_[100];
  batch->Append(steps);
  ASSERT_TRUE(steps[0].status.ok() && steps[1].status.ok());
  const std::vector<float> want = Next(*alone);
  EXPECT_LT(Apart(LogitsOf(*first), want), kClose);
  EXPECT_LT(Apart(LogitsOf(*second), want), kClose);
}

TEST_F(LateRowsTest, AResetForgetsThem) {
  auto session = Make("fastv:K=1"), fresh = Make("fastv:K=1");
  Begin(*session);
  session->Reset();
  Ask(*session);
  Ask(*fresh);
  EXPECT_EQ(LogitsOf(*session), LogitsOf(*fresh));
}

// A pot that is full before the prompt ends: rows go on before anything is chosen.
TEST_F(LateRowsTest, AFullPotLetsRowsGoOn) {
  auto kept = Make("fastv:K=1", 64), all = Make("fastv:K=1,rows=all", 64);
  for (Session* session : {kept.get(), all.get()}) {
    Begin(*session);
    ASSERT_TRUE(session->AppendEmbeddings(rows_, Modality::kImage, {}).ok());
    ASSERT_TRUE(session->BeginRound({tokens_.data(), 30}, 30).ok());
  }
  EXPECT_EQ(Held(*kept), Held(*all));
  EXPECT_LT(Apart(LogitsOf(*kept), LogitsOf(*all)), kClose);
}

// Several pictures, pieces of text, ends without words, and questions that follow one another.
TEST_F(LateRowsTest, PromptsInPieces) {
  for (const char* policy : {"fastv:K=1,R=0.5", "fastv:K=2,R=0.9,positions=abs", "a_vl:P=0.4,S=0.3,T=0.5,text_min=2"}) {
    SCOPED_TRACE(policy);
    auto session = Make(policy, 100);
    Rng rng(3);
    int64_t n_seen = 0;
    for (int round = 0; round < 40; ++round) {
      const int n_parts = 1 + static_cast<int>(rng.Below(5));
      for (int part = 0; part < n_parts; ++part) {
        Session::AppendOptions options;
        options.end_of_prompt = part + 1 == n_parts;
        if (rng.Below(2) == 0) {
          const size_t n = 1 + rng.Below(kImage);
          n_seen += static_cast<int64_t>(n);
          ASSERT_TRUE(
              session
                  ->AppendEmbeddings(std::span(rows_).first(n * static_cast<size_t>(tiny_.model->config().n_embd)),
                                     Modality::kImage, options)
                  .ok());
        } else {
          const size_t n = rng.Below(8);  // none: the prompt ends where it is
          n_seen += static_cast<int64_t>(n);
          ASSERT_TRUE(session->Append({tokens_.data() + rng.Below(200), n}, options).ok());
        }
      }
      if (round % 3 == 0) Next(*session, 50 + static_cast<size_t>(round)), ++n_seen;
      if (round % 7 == 0) {
        std::vector<uint8_t> bytes, again;
        ASSERT_TRUE(session->Save(&bytes).ok());
        ASSERT_TRUE(session->Restore(bytes).ok());
        ASSERT_TRUE(session->Save(&again).ok());
        EXPECT_EQ(again, bytes);
      }
      for (const auto& held : Held(*session)) {
        EXPECT_LE(std::ssize(held), 100);
        EXPECT_TRUE(std::ranges::is_sorted(held));
      }
    }
    EXPECT_EQ(session->counters().seen, n_seen);
    EXPECT_EQ(session->ledger().peak_bytes(), session->plan().total_bytes);
  }
}

// A trace sees where the last row attends, in all layers, and changes nothing.
TEST_F(LateRowsTest, ATraceSeesTheLastRow) {
  const std::string path = ::testing::TempDir() + "weir_late_rows_" + std::to_string(getpid()) + ".jsonl";
  auto watched = Make("fastv:K=1", 128, true), alone = Make("fastv:K=1");
  TraceInfo info;
  info.pot = watched->plan().pot;
  info.attention_rows = 1;
  auto trace = std::move(TraceWriter::Open(path, info)).value();
  watched->SetTrace(trace.get());
  Ask(*watched);
  Ask(*alone);
  EXPECT_EQ(LogitsOf(*watched), LogitsOf(*alone));
  ASSERT_TRUE(trace->Close(watched->pot(), kText + kImage + kQuestion).ok());
  int n = 0;
  auto reader = std::move(TraceReader::Open(path)).value();
  reader->OnAttention([&](const TraceAttention& row) {
    ++n;
    EXPECT_EQ(row.seq, kText + kImage + kQuestion - 1);
    const std::span<const float> want = watched->pot().scores(row.layer);
    ASSERT_EQ(row.scores.size(), want.size());
    for (size_t slot = 0; slot < want.size(); ++slot) EXPECT_NEAR(row.scores[slot], want[slot], 1e-3);
  });
  TraceStep step;
  int64_t n_dropped = 0;
  for (bool more = true; more;) {
    const auto next = reader->Next(&step);
    ASSERT_TRUE(next.ok()) << next.status().message();
    more = *next;
    ++n_dropped;
  }
  EXPECT_EQ(n, watched->pot().shape().n_layers);
  EXPECT_GT(n_dropped, 1);
  std::remove(path.c_str());
}

// Families that cannot pause read every row, and say so in their plan.
TEST(LateRows, WaitWhereTheModelCanPause) {
  for (const auto& [model, waits] : {std::pair{"llama", true},
                                     {"qwen2", true},
                                     {"phi3", true},
                                     {"gemma2", false},
                                     {"opt", false},
                                     {"deepseek2", false},
                                     {"lfm2", false}}) {
    Tiny tiny(model);
    if (!tiny.model->config().no_pictures.empty()) continue;
    auto session = testing::Make(*tiny.model, *tiny.backend, "fastv:K=1", 64);
    EXPECT_EQ(session->plan().late_rows > 0, waits) << model;
  }
}

}  // namespace
}  // namespace weir::testing
