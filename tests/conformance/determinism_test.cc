// SPDX-License-Identifier: Apache-2.0
// The same stream gives the same bytes: with 1 to 16 threads, however often it is saved and read again by another
// process's model, in whatever order its forks are made and read. What chunks of other sizes change is in model_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "engine/loaded_encoder.h"
#include "engine/picture_reader.h"
#include "engine/session.h"
#include "support/picture.h"
#include "support/tiny.h"

namespace weir::testing {
namespace {

struct Case {
  const char* name;
  const char* model;    // of tests/golden
  const char* encoder;  // nullptr: words alone
  DType kv;
};

constexpr int32_t kPot = 56, kSteps = 16;
constexpr const char* kPolicies[] = {"weir", "h2o", "keydiff", "adakv", "streaming_llm"};

// A model as a process has it.
struct Machine {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<LoadedEncoder> encoder;

  Machine(const Case& what, int n_threads) {
    const std::string golden = SourceDir() + "/tests/golden/";
    LoadModelOptions load;
    load.path = golden + what.model + ".gguf";
    load.n_threads = n_threads;
    model = std::move(LoadedModel::Load(load)).value();
    if (what.encoder != nullptr) {
      encoder = std::move(LoadedEncoder::Load(golden + what.encoder + ".gguf", *model)).value();
    }
  }
};

struct Saved {
  std::vector<uint8_t> session, frames;
  bool operator==(const Saved&) const = default;
};

class Stream {
 public:
  Stream(const Machine& on, const std::string& policy, DType kv) {
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = kPot;
    options.k_type = options.v_type = kv;
    options.probe = {3, 1, 4};
    PictureRoom room;
    room.Include(64, 64);
    if (on.encoder != nullptr) options.beside = std::move(PictureReader::Plan(on.encoder->encoder(), room)).value();
    auto made = Session::Make(on.model->model(), on.model->backend(), options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    session_ = std::move(made).value();
    if (on.encoder != nullptr) {
      reader_ = std::move(PictureReader::Make(on.encoder->encoder(), *session_, room)).value();
    }
  }

  // Text, a picture, a question, an answer, and so on. Every answer's tokens follow from the logits before them.
  // `voice`: another text.
  void Walk(int from, int to, int voice = 0) {
    const std::vector<int32_t> text = RandomTokens(2000, session_->model().config().n_vocab);
    for (int step = from; step < to; ++step) {
      const std::span<const int32_t> words(text.data() + 40 * step + 13 * voice, 17);
      Session::AppendOptions append;
      append.t_src_ms = 1000 * step;
      if (step % 4 == 0) {
        append.end_of_prompt = true;
        ASSERT_TRUE(session_->Append(words, append).ok());
      } else if (step % 4 == 1 && reader_ != nullptr) {
        const std::vector<uint8_t> pixels = Picture(static_cast<uint32_t>(30 + step), static_cast<uint32_t>(40 - step));
        const Modality modality = step % 8 == 1 ? Modality::kVideo : Modality::kImage;
        const Status read = reader_->ReadPixels({pixels.data(), 30 + step, 40 - step}, modality, append);
        ASSERT_TRUE(read.ok()) << read.message();
      } else if (step % 4 < 3) {
        if (reader_ != nullptr) {
          ASSERT_TRUE(reader_->Recall(append).ok());
        }
        ASSERT_TRUE(session_->BeginRound(words.first(6), 5).ok());
        append.end_of_prompt = true;
        ASSERT_TRUE(session_->Append(words.first(6), append).ok());
      } else {
        append.generated = true;
        for (int i = 0; i < 5; ++i) {
          const std::vector<float> logits = LogitsOf(*session_);
          said_.insert(said_.end(), logits.begin(), logits.end());
          const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
          ASSERT_TRUE(session_->Append({&best, 1}, append).ok());
        }
      }
    }
  }

  Saved Save() const {
    Saved out;
    EXPECT_TRUE(session_->Save(&out.session).ok());
    if (reader_ != nullptr && reader_->frames().keeps()) {
      VectorSink sink(&out.frames);
      EXPECT_TRUE(reader_->frames().Save(sink).ok());
    }
    return out;
  }
  void Restore(const Saved& saved) {
    ASSERT_TRUE(session_->Restore(saved.session).ok());
    if (saved.frames.empty()) return;
    SpanSource source(saved.frames);
    ASSERT_TRUE(reader_->frames().Restore(source).ok());
  }
  void Fork(const Stream& from) {
    ASSERT_TRUE(session_->CopyFrom(*from.session_).ok());
    if (reader_ != nullptr) reader_->frames().CopyFrom(from.reader_->frames());
  }
  const std::vector<float>& said() const { return said_; }
  int64_t n_selections() const { return session_->counters().selections; }

 private:
  std::unique_ptr<Session> session_;
  std::unique_ptr<PictureReader> reader_;
  std::vector<float> said_;
};

class Determinism : public ::testing::TestWithParam<Case> {};

TEST_P(Determinism, OneToSixteenThreads) {
  const Machine alone(GetParam(), 1);
  std::vector<Saved> bytes;
  std::vector<std::vector<float>> said;
  for (const char* policy : kPolicies) {
    Stream stream(alone, policy, GetParam().kv);
    stream.Walk(0, kSteps);
    EXPECT_GT(stream.n_selections(), 2) << policy;
    bytes.push_back(stream.Save());
    said.push_back(stream.said());
  }
  for (int n_threads = 2; n_threads <= 16; ++n_threads) {
    const Machine machine(GetParam(), n_threads);
    // Every number of threads with one policy, and some with all.
    for (size_t i = 0; i < std::size(kPolicies); ++i) {
      if (n_threads % 5 != static_cast<int>(i) && n_threads != 3 && n_threads != 16) continue;
      Stream stream(machine, kPolicies[i], GetParam().kv);
      stream.Walk(0, kSteps);
      EXPECT_EQ(stream.said(), said[i]) << kPolicies[i] << ", " << n_threads << " threads";
      EXPECT_TRUE(stream.Save() == bytes[i]) << kPolicies[i] << ", " << n_threads << " threads";
    }
  }
}

TEST_P(Determinism, AProcessThatStartsAgainAfterEveryStep) {
  for (const char* policy : kPolicies) {
    SCOPED_TRACE(policy);
    const Machine machine(GetParam(), 2);
    Stream whole(machine, policy, GetParam().kv);
    Saved saved;
    std::vector<float> said;
    for (int step = 0; step < kSteps; ++step) {
      whole.Walk(step, step + 1);
      const Machine other(GetParam(), 1 + step % 4);
      Stream again(other, policy, GetParam().kv);
      if (step > 0) again.Restore(saved);
      again.Walk(step, step + 1);
      said.insert(said.end(), again.said().begin(), again.said().end());
      saved = again.Save();
      ASSERT_TRUE(saved == whole.Save()) << "after step " << step;
    }
    EXPECT_EQ(said, whole.said());
  }
}

TEST_P(Determinism, ForksInAnyOrder) {
  constexpr size_t kForks = 4;
  const Machine machine(GetParam(), 2);
  for (const char* policy : {"weir", "h2o"}) {
    SCOPED_TRACE(policy);
    Stream trunk(machine, policy, GetParam().kv);
    trunk.Walk(0, 6);
    const Saved before = trunk.Save();
    std::array<Saved, kForks> want;
    std::array<size_t, kForks> order;
    std::iota(order.begin(), order.end(), size_t{0});
    do {
      std::array<std::unique_ptr<Stream>, kForks> forks;
      const bool in_turn = order[0] % 2 == 0;
      for (const size_t i : order) {
        forks[i] = std::make_unique<Stream>(machine, policy, GetParam().kv);
        forks[i]->Fork(trunk);
        if (!in_turn) forks[i]->Walk(6, 10, static_cast<int>(i));
      }
      for (int step = 6; in_turn && step < 10; ++step) {
        for (const size_t i : order) forks[i]->Walk(step, step + 1, static_cast<int>(i));
      }
      for (size_t i = 0; i < kForks; ++i) {
        const Saved bytes = forks[i]->Save();
        if (want[i].session.empty()) want[i] = bytes;
        ASSERT_TRUE(bytes == want[i]) << "fork " << i << " of the order " << ::testing::PrintToString(order);
      }
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_TRUE(trunk.Save() == before) << "forks change nothing of what they come from";
    EXPECT_FALSE(want[0] == want[1]);
  }
}

// Attention alone, windows, latents, several streams, layers that keep a state, experts; caches of 8 bits and of 4;
// pictures in one piece, with three axes, that see one another, and frames that are read together.
INSTANTIATE_TEST_SUITE_P(Streams, Determinism,
                         ::testing::Values(Case{"llama", "models/llama", nullptr, DType::kF16},
                                           Case{"gemma3", "models/gemma3", nullptr, DType::kF32},
                                           Case{"deepseek2", "models/deepseek2", nullptr, DType::kQ8_0},
                                           Case{"gemma3n", "models/gemma3n", nullptr, DType::kF16},
                                           Case{"qwen35", "models/qwen35", nullptr, DType::kF16},
                                           Case{"nemotron_h", "models/nemotron_h", nullptr, DType::kF16},
                                           Case{"gpt_oss", "models/gpt_oss", nullptr, DType::kF16},
                                           Case{"wide", "models/llama_wide_heads", nullptr, DType::kQ4_0},
                                           Case{"llava", "vision/llava", "vision/clip", DType::kF16},
                                           Case{"qwen2vl", "vision/qwen2vl", "vision/qwen2vl_merger", DType::kF16},
                                           Case{"gemma3_vision", "vision/gemma3_text", "vision/gemma3_vision",
                                                DType::kF16},
                                           Case{"flash_vstream", "vision/llava", "vision/flash_vstream", DType::kF16}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weir::testing
